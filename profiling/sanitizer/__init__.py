"""Compute Sanitizer: command lines and logs."""
