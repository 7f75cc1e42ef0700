"""The child process: the only place with torch, triton and nvtx; otherwise standard library alone."""
