"""Judgements over a run of optimization: pure functions of what was measured."""
