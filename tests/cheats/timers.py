"""Cheats against the clock, by the rows of the list of how kernels cheat, and how each is tried."""

from tests.cheats import timers_clock, timers_conduct, timers_reuse
from tests.cheats.checking import Checker
from tests.cheats.timers_base import TimerCheat
from tests.faults.evaluations import ignore
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.results import respond
from tritonforge.server.tools.benchmark import benchmark
from tritonforge.server.tools.benchmark_report import BenchmarkResult

CHEATS: list[TimerCheat] = sorted(
    [cheat for module in (timers_conduct, timers_clock, timers_reuse) for cheat in module.CHEATS],
    key=lambda cheat: cheat.row,
)
TWINS: list[tuple[str, str, str]] = list(dict.fromkeys(cheat.twin for cheat in CHEATS))
"""Kernel, task and baseline; several cheats have one in common."""
GAIN = 1.3
"""What a cheat is after."""


class TimerChecker:
    """Runs cheats and their twins through `benchmark`, each beside the honest kernel of its task."""

    def __init__(self, checker: Checker) -> None:
        self._services = checker.services
        self._known: dict[tuple[str, str, str], BenchmarkResult] = {}

    async def time(self, kernel: str, task: str, baseline: str) -> BenchmarkResult:
        async def evaluate() -> BenchmarkResult:
            return await benchmark(self._services, ignore, kernel=kernel, task=task, baseline=baseline)

        return BenchmarkResult.model_validate((await respond(BenchmarkResult, evaluate)).structured_content)

    async def is_caught(self, cheat: TimerCheat) -> None:
        """It has no times, and the message says why; or it has those that it deserves."""
        result = await self.time(cheat.hostile, cheat.task, cheat.baseline)
        if result.kind is Kind.OK:
            assert cheat.gains_nothing, result.summary
            assert gain_of(result) is None, result.summary
            return
        assert result.cases == []
        assert result.problem is not None
        assert any(result.kind is kind and words in result.problem.message for kind, words in cheat.found), (
            result.kind,
            result.summary,
        )

    async def honest_twin_is_timed(self, cheat: TimerCheat) -> None:
        """Twins that several cheats have in common are timed once."""
        if cheat.twin not in self._known:
            self._known[cheat.twin] = await self.time(*cheat.twin)
        result = self._known[cheat.twin]
        assert result.kind is Kind.OK, result.summary
        assert result.cases[0].comparison in cheat.honest_is, result.summary


def gain_of(result: BenchmarkResult) -> str | None:
    """What a result says is gained, that a cheat must not gain; None: nothing."""
    for case in result.cases:
        if case.comparison == "faster":
            return "device time"
        if case.call_ratio_low is not None and case.call_ratio_low > GAIN:
            return "time of whole calls"
    return None
