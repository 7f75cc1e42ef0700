"""Starts the server that this bundle holds."""

from tritonforge.server.__main__ import main

if __name__ == "__main__":
    main()
