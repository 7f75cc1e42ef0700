"""Headless optimization: an agent's own CLI, or any program, drives a run from a shell."""
