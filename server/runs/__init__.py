"""Optimization runs: state, evaluation of candidates, and what is remembered."""
