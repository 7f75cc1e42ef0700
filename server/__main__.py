"""``tritonforge-mcp``: serves MCP over stdio, or runs one of the subcommands."""

import gc
import sys

from pydantic import BaseModel


def main() -> None:
    """Console entry point."""
    _start_quickly()
    from .cli import run

    sys.exit(run(sys.argv[1:]))


def _start_quickly() -> None:
    """Clients wait for the first answer, and nearly all of that wait is the import of the protocol's models.

    The SDK defines every message of two protocol versions; most are never seen in a session, so each is built when it
    is first used. Collecting garbage while thousands of classes are made finds none; `serve` turns it on again.
    """
    gc.disable()
    BaseModel.model_config["defer_build"] = True


if __name__ == "__main__":
    main()
