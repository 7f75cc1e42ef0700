"""What timed workers tell: samples and what belongs to them, checked before they are believed."""

from typing import Annotated, Final

from pydantic import Field

from .facts import Line, Microseconds
from .wire import Wire

CALLS_LIMIT: Final = 4096
"""Of a visit."""
KERNELS_LIMIT: Final = 64
TUNED_LIMIT: Final = 256

Seconds = Annotated[float, Field(ge=0, le=1e6)]


class Sample(Wire):
    """One timed call, from the device's own activity records."""

    kernel_us: Microseconds
    """Sum over the kernels and copies that the call put on the device."""
    device_us: Microseconds
    """First start to last end of these."""
    activities: Annotated[int, Field(ge=0)]
    event_us: Microseconds | None = None
    """Between two events of the stream around the call: the witness."""


class Visit(Wire):
    """Some timed calls in a row, each with a flushed L2."""

    samples: list[Sample] = Field(max_length=CALLS_LIMIT)
    kernels: dict[Line, Microseconds] = Field(max_length=KERNELS_LIMIT)
    """Mean microseconds a call, by name of the kernel or copy."""
    sm_clock_hz: Annotated[float, Field(ge=1e6, le=1e11)] | None
    """SM clock at the end of the visit, from kernels that wait for a known number of cycles."""
    strays: list[Line] = Field(default=[], max_length=KERNELS_LIMIT)
    """What else ran on the device meanwhile and belongs to no call."""


class FirstCall(Wire):
    """The call before any other, and the one behind it."""

    first_call_s: Seconds
    """Compile and autotuning included."""
    second_call_us: Microseconds
    """Host call to completion."""
    results_bytes: Annotated[int, Field(ge=0, lt=2**63)]
    varies: bool
    """Contents of inputs differ from call to call."""
    constant: Annotated[int, Field(ge=0)] = 0
    """Input tensors whose contents never do: integers and booleans."""


class LaidOut(Wire):
    """Where visits take place."""

    layouts: Annotated[int, Field(ge=1, lt=1000)]
    """Sets of buffers that visits rotate over."""
    calls: Annotated[int, Field(ge=1)]
    """That a visit has at most."""


class GraphFloor(Wire):
    """A call as a CUDA graph, or why there is none."""

    graph_call_us: Microseconds | None = None
    """Host call to completion of a replay."""
    graph_device_us: Microseconds | None = None
    """First start to last end on the device."""
    reason: Line | None = None


class Tuned(Wire):
    """What Triton's autotuner chose for one kernel."""

    kernel: Line
    configuration: Line
    configurations: Annotated[int, Field(ge=0)]
    """How many there were to choose from."""
    tuning_s: Seconds | None = None
    """What trying them took; null where nothing had to be tried."""
