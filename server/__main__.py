"""``tritonforge-mcp``: serves MCP over stdio, or runs one of the subcommands."""

import sys

from .cli import run


def main() -> None:
    """Console entry point."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
