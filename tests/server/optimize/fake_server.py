"""An MCP server over stdio as agents' CLIs start it, that measures what a candidate's text says."""

import sys
from pathlib import Path

import anyio
from pydantic import BaseModel


def main() -> None:
    """Serve; the only argument is the state folder."""
    # As the console script does: most of the protocol's messages are never seen, and an agent waits for this.
    BaseModel.model_config["defer_build"] = True
    from tests.server.runs.fake_evaluator import FakeEvaluator
    from tritonforge.server.app import build_server
    from tritonforge.server.settings import Settings

    server = build_server(Settings(state_dir=Path(sys.argv[1])), lambda _: FakeEvaluator())
    anyio.run(server.run_stdio_async)


if __name__ == "__main__":
    main()
