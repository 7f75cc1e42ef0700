"""What a kernel file's syntax tree gives away. Nothing of the file is imported or run."""
