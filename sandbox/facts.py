"""What workers tell, as typed values: every field of a reply is checked before it is believed."""

from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, Field, JsonValue

from .outcome import Problem
from .wire import Wire

LINE_LIMIT: Final = 400
"""Characters of a text that goes into a result."""
TENSORS_LIMIT: Final = 4096
"""Of one call: each comes as a blob, of which a frame has no more."""
NAMES_LIMIT: Final = 8192
"""Of other lists: what a worker of ours keeps is far shorter."""


def line(text: str) -> str:
    """One line of printable characters, cut where it is too long: a reader may take anything else for instructions."""
    shown = text[: LINE_LIMIT + 1]
    shown = "".join(character if character.isprintable() else "?" for character in shown)
    return shown if len(shown) <= LINE_LIMIT else shown[: LINE_LIMIT - 3] + "..."


Line = Annotated[str, AfterValidator(line)]
Extent = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Address = Annotated[int, Field(ge=0, le=2**64)]
Integer = Annotated[int, Field(ge=-(2**63), lt=2**64)]
Microseconds = Annotated[float, Field(ge=0, le=1e12)]
Places = Annotated[list[tuple[Address, Address]], Field(max_length=TENSORS_LIMIT)]


Vendor = Literal["nvidia", "amd"]


class TargetFacts(Wire):
    """What a worker without a GPU needs to know of the one that it compiles for."""

    name: str
    vendor: Vendor = "nvidia"
    architecture: str = ""
    """As the vendor's compiler calls it, `gfx942`; NVIDIA's follows from the capability."""
    warp_threads: int = 32
    capability: int
    sm_count: int | None
    shared_bytes_per_block: int
    registers_per_sm: int


class Cluster(Wire):
    """Where along one dimension of an output the wrong elements lie."""

    dim: int
    size: int
    wrong: int
    """Coordinates with at least one wrong element."""
    first: int
    last: int
    step: int | None
    """Greatest common distance between the wrong coordinates, where it is 2 or more."""


class OutputComparison(Wire):
    """One output against the expected one."""

    where: Line
    mismatch: Line | None
    """Structure, shape, dtype, strides or device differ: nothing was compared element by element."""
    dtype: str | None = None
    elements: int = 0
    rtol: float = 0.0
    atol: float = 0.0
    wrong_elements: int = 0
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    worst_index: list[int] | None = None
    worst_expected: float | Line | None = None
    worst_got: float | Line | None = None
    not_finite_mismatches: int = 0
    finite_elements: int = 0
    """Expected elements that are finite numbers."""
    clusters: list[Cluster] = []


class OutputAccuracy(Wire):
    """How far one output lies from the float64 reference: root mean square of the error over that of the values."""

    where: Line
    error: float
    reference_error: float
    """Of the reference at the task's own precision."""
    allowed: float
    factor: float
    elements: int


class Difference(Wire):
    """A tensor whose bytes are not those that they should be."""

    where: Line
    elements: int = 0
    max_abs_difference: float | None = None
    mismatch: Line | None = None
    """Shape, dtype or structure differ: nothing was compared."""


class BrokenMargin(Wire):
    """Canary bytes beside a tensor that were overwritten."""

    index: int
    side: Literal["before", "after"]
    bytes: int
    distance: int
    """Bytes from the tensor's edge to the nearest one that was overwritten."""


class Verification(Wire):
    """What the task's worker found in the results of one call."""

    outputs: list[OutputComparison]
    accuracy: list[OutputAccuracy]
    changed: list[Difference]
    """Inputs that the call wrote to and should not have."""
    broken: list[BrokenMargin]


class OutputFiniteness(Wire):
    """One floating output of the reference."""

    where: Line
    elements: int
    nan: int
    inf: int
    rms: float | None


class Expected(Wire):
    """What is known of the expected outputs."""

    outputs: list[OutputFiniteness]
    aliased: list[bool]
    """Per output tensor: whether it shares memory with an input."""
    in_place: list[str]
    bytes: Annotated[int, Field(ge=0)] = 0
    """That the output tensors span."""


class Variant(Wire):
    """Structured inputs that a case admits."""

    name: str
    scale: float | None
    slacks: dict[str, float] = {}
    """By output, what is added to its absolute tolerance: these inputs magnify roundings."""


class Skipped(Wire):
    """A check that was not made, and why."""

    name: Line
    reason: Line


class Audit(Wire):
    """What a case of a task is worth as a test."""

    nondeterministic: list[Difference]
    """Outputs that differed between two runs of the reference on the same inputs."""
    outputs: list[OutputFiniteness]
    impostors: list[str]
    """Wrong results that the task's tolerance lets pass."""
    exact: str | None
    """Why there is no float64 reference; None where there is one."""
    variants: list[Variant]
    skipped: list[Skipped]


class Launched(Wire):
    """A Triton kernel that a call launched."""

    kernel: Line
    symbol: Line
    own: bool
    """Defined by the kernel file or its neighbours, not by an installed package."""
    count: Count


class DeviceWork(Wire):
    """A kernel, copy or fill that the device carried out during a call."""

    name: Line
    us: Microseconds
    count: Count


class CallFacts(Wire):
    """What happened during a call, as the kernel's worker tells it."""

    labels: list[Line] = Field(max_length=NAMES_LIMIT)
    """Names of the tensors with margins."""
    outputs_at: Places
    """Addresses that each output tensor spans: first byte, one past the last."""
    inputs_at: Places
    launched: list[Launched] = Field(max_length=NAMES_LIMIT)
    activities: list[DeviceWork] | None = Field(max_length=NAMES_LIMIT)
    """None where the device's work was not recorded."""
    operations: dict[Line, Count] = Field(max_length=NAMES_LIMIT)
    """torch operations that computed something, by name."""
    touched: list[bool] = Field(max_length=TENSORS_LIMIT)
    """Per output tensor: whether its storage was an argument of a launch."""
    own_symbols: list[Line] = Field(default=[], max_length=NAMES_LIMIT)
    """Kernels of the file's own that were launched in this or an earlier call: a CUDA graph replays them."""
    on_gpu: bool = False


class CapturedLaunch(Wire):
    """One distinct launch that an entry made, compiled for the target."""

    kernel: Line
    symbol: Line
    grid: tuple[Extent, Extent, Extent]
    count: Count
    tuning: bool
    """Made by the autotuner while it tried configurations."""
    num_warps: int = Field(ge=1, le=1024)
    num_stages: int = Field(ge=0, le=1024)
    num_ctas: int = Field(ge=1, le=1024)
    shared_bytes: Extent
    constexprs: dict[Line, JsonValue]
    signature: dict[Line, Line]
    divisible_by_16: list[Line]
    integers: dict[Line, Integer] = {}
    """Values of integer arguments, in the first of the equal launches."""
    line: Extent | None
    ptxas_log: str | None
    assembly: dict[str, int]


class Captured(Wire):
    """What an entry launched."""

    launches: list[CapturedLaunch]
    left_out: Count
    """Further distinct launches, that the worker kept to itself."""


class Explained(Wire):
    """A captured kernel, looked at again."""

    code: str = Field(max_length=64)
    """SHA-256 of its machine code."""
    said: list[Annotated[str, Field(max_length=1000)]] = Field(max_length=NAMES_LIMIT)
    """What the compiler's passes said."""
    sass: int | None
    """Which blob is its machine code as text."""
    reason: Line | None
    """Why there is no such text."""


class Explanation(NamedTuple):
    """What the compiler said of a kernel, and its machine code as text, or why there is none."""

    said: list[str]
    sass: str | None
    reason: str | None


class Capture(NamedTuple):
    """The launches of one call of the entry, with their assembly texts by stage."""

    launches: list[CapturedLaunch]
    blobs: list[bytes]
    left_out: int = 0
    """Further distinct launches, that the worker kept to itself."""

    def text(self, launch: CapturedLaunch, stage: str) -> str:
        """An assembly text (``ttir``, ``ttgir``, ``llir`` or ``ptx``) of a launch."""
        return self.blobs[launch.assembly[stage]].decode("utf-8", errors="replace")


class GpuFacts(Wire):
    """The GPU that the worker's torch sees."""

    name: str
    capability: int
    sm_count: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_sm: int | None = None
    shared_bytes_per_block: int | None = None
    """The most that a block can have."""
    registers_per_sm: int | None = None
    threads_per_sm: int | None = None
    warp_threads: int | None = None
    cuda: str | None
    device_count: int


class Environment(Wire):
    """What the worker's interpreter has; `problem` says why kernels can't be evaluated in it."""

    python: str | None = None
    executable: str
    torch: str | None = None
    triton: str | None = None
    numpy: str | None = None
    nvtx: str | None = None
    gpu: GpuFacts | None = None
    problem: Problem | None = None
