"""Facts that no compiler made, for what is told of facts alone."""

from collections.abc import Sequence
from typing import Any

from tests.profiling.compiler.conftest import FOLDER, LAUNCHES
from tritonforge.profiling.compiler.details import details
from tritonforge.profiling.compiler.launch import RawLaunch, build
from tritonforge.profiling.diagnosis.facts import Facts, Need
from tritonforge.profiling.diagnosis.model import Level, Prediction, Rewrite
from tritonforge.profiling.diagnosis.rule import Hit, Rule, seen
from tritonforge.profiling.diagnosis.source import kernel, syntax
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.profiling.ncu.hotspots import Hotspot
from tritonforge.profiling.ncu.model import LaunchProfile
from tritonforge.sandbox.facts import CapturedLaunch

H200 = resolve_target("h200")


def captured(**changed: Any) -> CapturedLaunch:
    """A launch of `kernel` of which nothing was kept."""
    given: dict[str, Any] = {
        "kernel": "kernel", "symbol": "kernel", "grid": (4096, 1, 1), "count": 1, "tuning": False, "num_warps": 4,
        "num_stages": 3, "num_ctas": 1, "shared_bytes": 0, "constexprs": {}, "signature": {}, "divisible_by_16": [],
        "line": None, "ptxas_log": None, "assembly": {},
    }  # fmt: skip
    return CapturedLaunch.model_validate(given | changed)


def recorded(name: str, grid: tuple[int, int, int] = (4096, 1, 1), **changed: Any) -> Facts:
    """A recorded launch, without its source."""
    num_warps, num_stages, shared_bytes = LAUNCHES[name]
    ptx, ttgir, log = ((FOLDER / f"{name}.{kind}").read_text() for kind in ("ptx", "ttgir", "ptxas"))
    raw = RawLaunch("kernel", grid, num_warps, num_stages, 1, shared_bytes, ptx, ttgir, log)
    facts = build(raw, H200).model_copy(update=changed)
    return Facts(target=H200, captured=captured(grid=grid), launch=facts, lines=details(ptx, ttgir))


def written(text: str, **launch: Any) -> Facts:
    """A source whose first kernel was launched, and nothing else."""
    file = syntax.parse(text)
    assert file is not None
    one = captured(kernel=next(iter(file.kernels)), **launch)
    return Facts(target=H200, captured=one, file=file, source=kernel.live(file, one.kernel, one))


def profile(**fields: Any) -> LaunchProfile:
    """A profile of which nothing is known but `fields`."""
    nothing: dict[str, Any] = dict.fromkeys(LaunchProfile.model_fields)
    empty: dict[str, Any] = {"kernel": "k", "occupancy_limits": {}, "stalls": (), "pipes": (), "absent": {}}
    return LaunchProfile(**nothing | empty | fields)


def hotspot(line: int, pct: float) -> Hotspot:
    """A line with a share of the samples."""
    nothing: dict[str, Any] = dict.fromkeys(Hotspot.model_fields)
    told: dict[str, Any] = {"line": line, "samples": 100, "pct": pct, "stall": "barrier", "stall_pct": 50.0}
    rest: dict[str, Any] = {"instruction": "BAR", "instruction_pct": 1.0, "operations": [], "hot": True}
    return Hotspot(**nothing | told | rest)


def rule(
    id: str, *lines: int | None, level: Level = Level.CODE, needs: Sequence[Need] = (), weight: int = 50, **more: Any
) -> Rule:
    """A rule that finds what it is told to."""
    hits = [Hit((seen(level, "seen", line),), line) for line in lines]
    given: dict[str, Any] = {
        "id": id, "name": f"name of {id}", "level": level, "needs": frozenset(needs), "weight": weight,
        "falsified_by": "wrong", "example": "a\n->\nb",
    }  # fmt: skip
    return Rule(
        detect=lambda facts: hits,
        explain=lambda facts, hit: "cause",
        rewrite=lambda facts, hit: Rewrite(recipe="recipe", no_diff="none"),
        predicts=lambda facts, hit: [Prediction(fact="launch.registers", now=1, expected="falls")],
        **given | more,
    )
