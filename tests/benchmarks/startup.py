"""How fast the server answers: process start to the answer of tools/list, over real stdio.

Run: python tests/benchmarks/startup.py [--runs 5]
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from datetime import date
from importlib.metadata import version
from typing import Any

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "startup-benchmark", "version": "1"},
    },
}
INITIALIZED: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST_TOOLS: dict[str, Any] = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}


def once() -> float:
    """Seconds from process start to the complete answer of tools/list."""
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "tritonforge.server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for message in (INITIALIZE, INITIALIZED, LIST_TOOLS):
            server.stdin.write(json.dumps(message) + "\n")
            server.stdin.flush()
            if "id" in message:
                answer = json.loads(server.stdout.readline())
                assert answer["id"] == message["id"], answer
        elapsed = time.perf_counter() - started
        server.stdin.close()
    return elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    once()  # Fills the file cache.
    times = [once() for _ in range(runs)]
    print(f"{date.today()}, Python {platform.python_version()}, mcp {version('mcp')}, {platform.machine()}")
    print("seconds:", " ".join(f"{seconds:.3f}" for seconds in times))
    print(f"median of {runs}: {statistics.median(times):.3f} s")


if __name__ == "__main__":
    main()
