"""A launch of one of the kernels in `kernels/`, as the compiler and its passes describe it."""

from dataclasses import dataclass
from importlib.metadata import version

from tritonforge.profiling.compiler import ptx, ttgir
from tritonforge.profiling.compiler.details import LaunchDetails, details
from tritonforge.profiling.compiler.launch import LaunchFacts, RawLaunch, build
from tritonforge.profiling.compiler.observations import observe
from tritonforge.profiling.compiler.ptx import PtxFacts
from tritonforge.profiling.compiler.ptx_lines import SiteKind
from tritonforge.profiling.compiler.remarks import Remark, parse
from tritonforge.profiling.compiler.ttgir import TtgirFacts
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.sandbox.facts import CapturedLaunch
from tritonforge.sandbox.wire import Wire

H200 = resolve_target("h200")
SMS = 132
TRITON = tuple(int(part) for part in version("triton").split(".")[:2])


class Compiled(Wire):
    """What `compile_launches.py` writes of one launch."""

    launches: list[CapturedLaunch]
    texts: list[str]
    said: list[str]
    """By the compiler's passes."""
    failure: str | None
    """Why there is no launch."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One launch, and everything that is read from it."""

    facts: LaunchFacts
    code: PtxFacts
    ir: TtgirFacts
    lines: LaunchDetails
    said: list[Remark]
    observed: list[str]
    """Ids of the observations."""

    @property
    def remarks(self) -> set[str]:
        return {remark.id for remark in self.said}

    @property
    def places(self) -> set[str]:
        return {place.what for place in self.lines.places}

    @property
    def notes(self) -> str:
        """Of ptxas."""
        return " ".join(self.facts.ptxas_notes)

    def count(self, *kinds: SiteKind, in_loop: bool = False) -> int:
        """Instructions of these kinds, in loops only or all."""
        return sum(site.count for site in self.lines.ptx if site.kind in kinds and site.in_loop >= in_loop)


def shown(compiled: Compiled) -> Shown:
    """Reads all that is known of a launch that was made."""
    assert compiled.failure is None, compiled.failure
    (launch,) = compiled.launches
    texts = {stage: compiled.texts[number] for stage, number in launch.assembly.items()}
    facts = build(
        RawLaunch(
            kernel=launch.symbol,
            grid=launch.grid,
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
            num_ctas=launch.num_ctas,
            shared_bytes=launch.shared_bytes,
            ptx=texts["ptx"],
            ttgir=texts["ttgir"],
            ptxas_log=launch.ptxas_log,
        ),
        H200,
    )
    return Shown(
        facts=facts,
        code=ptx.parse(texts["ptx"]),
        ir=ttgir.parse(texts["ttgir"]),
        lines=details(texts["ptx"], texts["ttgir"]),
        said=parse(compiled.said, ".py"),
        observed=[found.id for found in observe(facts, H200.limits, SMS)],
    )
