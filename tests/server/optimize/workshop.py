"""A folder with a kernel and a task, stub agents on PATH, and a headless optimization of them."""

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.server.runs.fake_evaluator import FakeEvaluator, candidate, task
from tritonforge.server.optimize.agents import AGENTS, Attached
from tritonforge.server.optimize.headless import optimize
from tritonforge.server.optimize.model import OptimizeResult, Plan
from tritonforge.server.runs.store import Store
from tritonforge.server.settings import Settings

ROOT: Final = Path(__file__).parents[3]
FAST: Final = (candidate(2, ratio=1.5), "wider loads: V1")
SLOW: Final = (candidate(3, ratio=0.8), "fewer warps")
WRONG: Final = (candidate(4, kind="wrong"), "cheaper arithmetic")
FASTEST: Final = (candidate(5, ratio=2.5), "one pass instead of two")


class Workshop:
    """Runs headless optimizations in a folder of their own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, monkeypatch
        self.kernel, self.task = folder / "kernel.py", folder / "made_up_task.py"
        self.kernel.write_text(candidate(1, findings=["V1", "V6"]))
        self.task.write_text(task("made up"))
        self.settings = Settings(state_dir=folder / "state")
        self.said: list[str] = []
        self.fake = FakeEvaluator()
        self._seen = folder / "seen.jsonl"
        monkeypatch.chdir(folder)

    def stub_clis(self, **does: Any) -> None:
        """Put stubs of all agents' CLIs on PATH, which do as they are told."""
        tools = self.folder / "bin"
        tools.mkdir(exist_ok=True)
        code = (ROOT / "tests/server/optimize/fake_cli.py").read_text()
        for name in AGENTS:
            program = tools / name
            program.write_text(f"#!{sys.executable}\n{code}")
            program.chmod(0o755)
        self._patch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
        self._patch.setenv("FAKE_AGENT", json.dumps(does))
        self._patch.setenv("FAKE_AGENT_SEEN", str(self._seen))

    def program(self, body: str) -> str:
        """A command line of a Python program; what it writes is in `body`, the request in `request`."""
        file = self.folder / "program.py"
        file.write_text(
            f"import json, os, sys, time\nfrom pathlib import Path\nrequest = json.load(sys.stdin)\n{body}\n"
        )
        return f"{sys.executable} {file}"

    def plan(self, agent: str, **fields: Any) -> Plan:
        """A plan that exports into `won`."""
        known: dict[str, Any] = {"task": str(self.task), "export_to": self.folder / "won", "wall_s": 120.0}
        return Plan(kernel=str(self.kernel), agent=agent, **{**known, **fields})

    async def optimize(self, agent: str, **fields: Any) -> OptimizeResult:
        """Run it, with the made-up evaluator here and behind the attached server."""
        # As clients do that pass nothing of their environment on.
        server = Attached(
            sys.executable,
            ["-m", "tests.server.optimize.fake_server", str(self.settings.state_dir)],
            {"PYTHONPATH": str(ROOT)},
        )
        return await optimize(
            self.plan(agent, **fields),
            self.settings,
            say=self.said.append,
            evaluator=lambda _: self.fake,
            server=server,
        )

    @property
    def starts(self) -> list[dict[str, Any]]:
        """How the stubs were started."""
        return [json.loads(line) for line in self._seen.read_text().splitlines()] if self._seen.exists() else []

    def store(self) -> Store:
        """Where the runs are kept."""
        return Store(self.settings.state_dir / "runs")
