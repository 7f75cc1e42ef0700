"""Runs untrusted kernels in worker processes and returns facts; imports nothing of ours above it."""
