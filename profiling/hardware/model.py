"""What is known about a GPU before anything is measured on it."""

from ...sandbox.facts import Vendor
from ...sandbox.wire import Wire


class SmLimits(Wire):
    """What one streaming multiprocessor (SM) can hold; the same for every GPU of an architecture.

    On AMD an SM is a compute unit, a warp is a wave, a block is a workgroup, shared memory is LDS, and registers are
    vector registers, those for accumulation among them.
    """

    vendor: Vendor = "nvidia"
    architecture: str
    """As the vendor's compiler calls it: `sm_90`, `gfx942`."""
    capability: int
    """Compute capability as one number: 90 for 9.0."""
    warp_threads: int = 32
    warps_per_sm: int
    blocks_per_sm: int
    blocks_of_one_warp_per_sm: int | None = None
    """The same for blocks of one warp, where they take nothing of what limits the others."""
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    """Most shared memory of one block, static and dynamic together."""
    shared_bytes_reserved_per_block: int = 1024
    """Taken by the system for every block, on top of what the block asks for."""
    shared_allocation_unit_bytes: int = 128
    registers_per_sm: int = 65_536
    registers_per_thread: int = 255
    register_allocation_unit: int = 256
    """Registers are handed out to a warp in multiples of this many."""
    partitions_per_sm: int = 4
    """Sub-partitions (AMD: SIMDs) with a register file each; a warp lives in one of them."""
    source: str = (
        "CUDA C++ programming guide, technical specifications per compute capability; allocation units from "
        "cuda_occupancy.h"
    )


class Gpu(Wire):
    """Data-sheet numbers of one product. All peaks are dense; what is not known is null."""

    name: str
    """Catalogue name, such as `h100-sxm`."""
    product: str
    aliases: tuple[str, ...] = ()
    device_names: tuple[str, ...] = ()
    """What CUDA and the driver call the device."""
    capability: int
    """Compute capability as one number: 90 for 9.0. Of AMD's GPUs, what torch gives as theirs: 94 for gfx942."""
    sm_count: int
    """Of AMD's GPUs, compute units."""
    boost_clock_hz: int | None = None
    """Highest SM clock."""
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    memory_bytes_per_s: float | None = None
    peak_fp64_flops_per_s: float | None = None
    """FP64 outside the tensor cores."""
    peak_fp64_tensor_flops_per_s: float | None = None
    peak_fp32_flops_per_s: float | None = None
    """FP32 outside the tensor cores."""
    peak_tf32_dense_flops_per_s: float | None = None
    peak_bf16_dense_flops_per_s: float | None = None
    """The same for FP16."""
    peak_fp8_dense_flops_per_s: float | None = None
    source: str

    @property
    def ridge_flops_per_byte(self) -> float | None:
        """Dense bf16 operations a byte of device memory: with fewer, memory is what limits."""
        if self.peak_bf16_dense_flops_per_s is None or self.memory_bytes_per_s is None:
            return None
        return self.peak_bf16_dense_flops_per_s / self.memory_bytes_per_s


class Target(Wire):
    """What code is compiled for: a product of the catalogue, or a bare architecture such as `sm_90`.

    Whose it is and how its compiler calls it stands in its limits.
    """

    name: str
    capability: int
    gpu: Gpu | None = None
    """Null for a bare architecture: SM count and peaks are then unknown."""
    limits: SmLimits
