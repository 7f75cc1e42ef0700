"""All that a diagnosis may look at, and the named facts by which a prediction is checked."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from ...sandbox.facts import CapturedLaunch
from ..compiler.details import LaunchDetails
from ..compiler.launch import LaunchFacts
from ..compiler.observations import Observation, observe
from ..compiler.ptx_lines import PtxSite
from ..compiler.remarks import Remark
from ..compiler.sass_facts import SassFacts
from ..compiler.ttgir_lines import TtgirSite
from ..hardware.model import Target
from ..ncu.cause import Cause
from ..ncu.hotspots import Hotspot
from ..ncu.model import LaunchProfile
from .floor import Floor
from .model import Scalar
from .source.kernel import LiveKernel
from .source.syntax import KernelFile

Need = Literal["source", "code", "lines", "remarks", "machine_code", "profile"]
"""`source`: the kernel's syntax tree with what the launch says of its arguments. `code`: the launch's record. `lines`:
the same by line. `remarks`: what the passes said. `machine_code`: SASS. `profile`: counters."""


@dataclass(frozen=True, slots=True)
class Call:
    """All launches of one call of the entry, as they were profiled."""

    us: float
    """Their time together."""
    launches: int
    others_us: float
    """Time of launches that are none of the file's own kernels: torch's copies, casts, fills and reductions."""
    others: tuple[str, ...]
    """Their names, those that take longest first."""
    complete: bool
    """Whether there were no more."""


@dataclass(frozen=True)
class Facts:
    """Of one launch. What is None was not looked at."""

    target: Target
    captured: CapturedLaunch
    file: KernelFile | None = None
    source: LiveKernel | None = None
    """The kernel as this launch compiles it: without the branches that its constants rule out."""
    launch: LaunchFacts | None = None
    lines: LaunchDetails | None = None
    remarks: Sequence[Remark] | None = None
    machine_code: SassFacts | None = None
    profile: LaunchProfile | None = None
    causes: Sequence[Cause] = field(default=())
    hotspots: Sequence[Hotspot] = field(default=())
    floor: Floor | None = None
    """The least time that the launch's work takes on the device."""
    call: Call | None = None
    """What else the entry launches."""

    def has(self, need: Need) -> bool:
        match need:
            case "source":
                return self.source is not None
            case "code":
                return self.launch is not None
            case "lines":
                return self.lines is not None
            case "remarks":
                return self.remarks is not None
            case "machine_code":
                return self.machine_code is not None
            case "profile":
                return self.profile is not None

    @cached_property
    def _tables(self) -> tuple[dict[int | None, list[TtgirSite]], dict[int | None, list[PtxSite]]]:
        operations: dict[int | None, list[TtgirSite]] = {}
        instructions: dict[int | None, list[PtxSite]] = {}
        if self.lines is not None:
            for operation in self.lines.ttgir:
                operations.setdefault(operation.line, []).append(operation)
            for instruction in self.lines.ptx:
                instructions.setdefault(instruction.line, []).append(instruction)
        return operations, instructions

    def operations_at(self, line: int) -> list[TtgirSite]:
        """TTGIR of a line."""
        return self._tables[0].get(line, [])

    def instructions_at(self, line: int) -> list[PtxSite]:
        """PTX of a line."""
        return self._tables[1].get(line, [])

    @cached_property
    def observations(self) -> dict[str, Observation]:
        """What the record alone gives away, by id."""
        if self.launch is None:
            return {}
        sms = None if self.target.gpu is None else self.target.gpu.sm_count
        return {found.id: found for found in observe(self.launch, self.target.limits, sms)}

    def said(self, id: str, line: int | None = None) -> Remark | None:
        """A remark by its id, of a line if one is given."""
        found = (one for one in self.remarks or () if one.id == id and (line is None or one.line == line))
        return next(found, None)

    def instructions(self, *kinds: str) -> list[PtxSite]:
        """PTX of these kinds."""
        return [] if self.lines is None else [site for site in self.lines.ptx if site.kind in kinds]

    def count(self, *kinds: str, in_loop: bool = False) -> int:
        return sum(site.count for site in self.instructions(*kinds) if site.in_loop >= in_loop)


def at_first_lines(facts: Facts) -> Facts:
    """The same, where all that was compiled of a call counts on the line on which the call begins."""
    if facts.source is None:
        return facts
    starts = facts.source.first_lines()

    def moved(line: int | None) -> dict[str, int | None]:
        return {"line": None if line is None else starts.get(line, line)}

    lines = facts.lines
    if lines is not None:
        lines = lines.model_copy(
            update={
                "ptx": [site.model_copy(update=moved(site.line)) for site in lines.ptx],
                "ttgir": [site.model_copy(update=moved(site.line)) for site in lines.ttgir],
            }
        )
    remarks = facts.remarks
    if remarks is not None:
        remarks = [remark.model_copy(update=moved(remark.line)) for remark in remarks]
    hotspots = [spot.model_copy(update=moved(spot.line)) for spot in facts.hotspots]
    return replace(facts, lines=lines, remarks=remarks, hotspots=hotspots)


def value(fact: str, facts: Facts) -> Scalar | None:
    """A fact by its name; None where it is unknown.

    `launch.FIELD` of the record; `launch.FIELD.min` and `.max` of a list; `ptx.KIND` and `ptx.KIND.in_loops` count
    instructions; `remark.ID` counts remarks; `line.KIND.narrowest` is the fewest bytes of a tile's access.
    """
    group, _, name = fact.partition(".")
    match group:
        case "launch":
            return _of_record(name, facts.launch)
        case "ptx":
            kind, _, where = name.partition(".")
            return None if facts.lines is None else facts.count(kind, in_loop=where == "in_loops")
        case "remark":
            return None if facts.remarks is None else sum(one.id == name for one in facts.remarks)
        case _:
            return None


def _of_record(name: str, launch: LaunchFacts | None) -> Scalar | None:
    attribute, _, part = name.partition(".")
    found: object = getattr(launch, attribute, None)
    if isinstance(found, list):
        numbers = [each for each in found if isinstance(each, int)]  # pyright: ignore[reportUnknownVariableType]  a field's elements are checked here
        if not numbers:
            return None
        return min(numbers) if part == "min" else max(numbers)
    return found if isinstance(found, int | float | str) else None
