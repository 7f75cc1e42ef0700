"""What was measured of one case, as the tools that time kernels take it."""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..profiling.comparison import PairBlock
from ..profiling.times import Side, Times
from ..sandbox.conditions import Conditions
from ..sandbox.replies import Values
from ..sandbox.timing_facts import FirstCall, GraphFloor, Tuned

How = Literal["replayed", "in_candidate"]
Reference = Literal["eager", "torch.compile"]


@dataclass(slots=True)
class Against:
    """The reference, as it is or compiled, beside the candidate."""

    name: Reference
    times: Times | None = None
    first_call_s: float | None = None
    reason: str | None = None
    """Why it was not timed."""


@dataclass(slots=True)
class TimedCase:
    """What was measured of one case."""

    case: str
    how: How
    how_reason: str | None
    """Why calls were not replayed."""
    candidate: Times
    """As `how` says; whole calls always in the candidate's own process."""
    baseline: Times | None
    groups: list[list[PairBlock]]
    """Blocks of candidate and baseline, one list a pair of processes."""
    first: FirstCall
    tuned: list[Tuned]
    baseline_tuned: list[Tuned]
    dtypes: set[str]
    """Of the input tensors."""
    input_bytes: int
    results_bytes: int | None
    varies: bool
    """Contents of inputs differed from call to call."""
    checked: int
    """Timed calls whose results were compared with what is expected."""
    repeated: int
    doubt: str | None = None
    """What speaks against the times though they are used."""
    replay_ratio: float | None = None
    """Time of an ordinary call over that of a replayed one, of the candidate."""
    further: list[list[Times]] = field(default_factory=list[list[Times]])
    """Candidate and baseline in the pairs of processes beside the first."""
    further_calls: list[list[PairBlock]] = field(default_factory=list[list[PairBlock]])
    """Whole calls of candidate and baseline in another pair of processes, where those of the first told of a loss."""
    graph: GraphFloor | None = None
    """Of a launch-bound entry whose launches can be replayed: a graph of these."""
    against: list[Against] = field(default_factory=list[Against])
    conditions: list[Conditions] = field(default_factory=list[Conditions])
    notes: list[str] = field(default_factory=list[str])


class Started(NamedTuple):
    """A case whose kernels have compiled and tuned themselves."""

    case: str
    seed: int
    inputs: Values
    seeds: list[int]
    """Of `alternatives`."""
    alternatives: Values
    """Other values of integer and boolean inputs."""
    contents: int | None
    """Seed of the contents of timed calls' inputs; None: they do not vary."""
    results_bytes: int | None
    """Of what is expected, where that is known."""
    sides: list[Side]
    firsts: list[FirstCall]


def dtypes_of(tree: Any) -> set[str]:
    """Data types of the tensors in an encoded tree of the task's worker."""
    if "tensor" in tree:
        return {str(tree["tensor"]["dtype"])}
    children = tree.get("list") or tree.get("tuple") or [item for _, item in tree.get("dict", ())]
    return {name for child in children for name in dtypes_of(child)}
