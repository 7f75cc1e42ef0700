"""Nsight Compute: command lines, metrics and reports."""
