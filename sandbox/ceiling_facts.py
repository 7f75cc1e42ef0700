"""What a worker measured of its GPU's highest rates, checked before it is believed."""

from typing import Annotated, Final

from pydantic import Field

from .facts import Line
from .wire import Wire

REASONS_LIMIT: Final = 16

Rate = Annotated[float, Field(gt=0, le=1e18)]
"""Amount a second; the largest is far beyond any one device."""


class CeilingFacts(Wire):
    """The highest rates that the GPU reached with operations of torch's and kernels of ours; null: see `absent`."""

    read_bytes_per_s: Rate | None = None
    """Reading device memory, with hardly anything written."""
    copy_bytes_per_s: Rate | None = None
    """As many bytes read as written; both count."""
    write_bytes_per_s: Rate | None = None
    l2_read_bytes_per_s: Rate | None = None
    """Reading what lies in L2, past L1."""
    fp32_flops_per_s: Rate | None = None
    """Outside the tensor cores: the higher of matrix products and chains of fused multiply-adds (FMA)."""
    tf32_flops_per_s: Rate | None = None
    bf16_flops_per_s: Rate | None = None
    """The same pipe as FP16."""
    fp8_flops_per_s: Rate | None = None
    launch_us: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Device time of a kernel that does next to nothing: no kernel is shorter."""
    absent: dict[Line, Line] = Field(default={}, max_length=REASONS_LIMIT)
    """Field -> why it isn't known."""
