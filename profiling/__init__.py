"""Turns facts from workers, compilers and profilers into judgements; pure where possible."""
