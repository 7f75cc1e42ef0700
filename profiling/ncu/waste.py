"""Causes that are work beyond what is needed: bytes, sectors, spills, and units of the SM that are used badly."""

from typing import Final

from .cause import LATENCY_PCT, Cause, Facts, at, cause, hottest, pct
from .report import traffic_ratio

CONFLICTS_PCT: Final = 10.0
"""SharedMemoryConflicts."""
USED_SECTOR_BYTES: Final = 24.0
NEEDED_SECTORS_PCT: Final = 90.0
"""UncoalescedGlobalAccess tells any excess over the ideal; here less than 24 of a sector's 32 bytes, and a tenth of all
sectors too many (own)."""
EXTRA_TRAFFIC: Final = 1.3
EXTRA_BYTES: Final = 4e6
"""Own: so many times what the work must move, and by so much more: small launches fetch code and page entries too."""
FLOPS_PER_BYTE: Final = 20.0
"""Own: above it fp32 is bound by plain cores on Hopper (67 TFLOP/s over 3.35 to 4.8 TB/s: 14 to 20)."""


def extra_traffic(facts: Facts) -> Cause | None:
    """More bytes of device memory than the work needs."""
    least = None if facts.work is None else facts.work.bytes
    moved = facts.profile.dram_bytes
    if least is None or moved is None or moved - least < EXTRA_BYTES:
        return None
    ratio = traffic_ratio(facts.profile, least)
    if ratio is None or ratio <= EXTRA_TRAFFIC:
        return None
    return cause(
        "extra_traffic",
        f"It moved {moved / 1e6:.1f} MB to and from device memory, {ratio:.1f} times the {least / 1e6:.1f} MB that the "
        "work needs",
        "Read each element once: one pass, keep it in registers or shared memory, or order programs so that those that "
        "share data run together.",
        dram_bytes=moved,
        work_bytes=least,
        ratio=ratio,
    )


def spills(facts: Facts) -> Cause | None:
    """LocalMemoryUsage. sin and cos have local memory without a spill, but only use it for huge arguments."""
    requests, registers = facts.profile.local_requests, facts.profile.registers
    if not requests:
        return None
    return cause(
        "spills",
        f"{requests:,.0f} requests went to local memory at {registers or 'unknown'} registers a thread: spilled "
        "registers, or arrays with an index known at run time only",
        "Give a thread less: a smaller tile, more warps, or a loop over chunks; compile_kernel tells spill_bytes and "
        "their lines.",
        local_requests=requests,
        registers=registers,
    )


def uncoalesced_loads(facts: Facts) -> Cause | None:
    """UncoalescedGlobalAccess."""
    profile = facts.profile
    return _uncoalesced(facts, "load", profile.load_bytes_per_sector, profile.load_sectors_per_request)


def uncoalesced_stores(facts: Facts) -> Cause | None:
    """UncoalescedGlobalAccess."""
    profile = facts.profile
    return _uncoalesced(facts, "store", profile.store_bytes_per_sector, profile.store_sectors_per_request)


def _uncoalesced(facts: Facts, kind: str, used: float | None, per_request: float | None) -> Cause | None:
    needed = facts.profile.needed_sectors_pct
    if used is None or used >= USED_SECTOR_BYTES or (needed is not None and needed >= NEEDED_SECTORS_PCT):
        return None
    spread = "" if per_request is None else f", {per_request:.0f} sectors a request"
    line = hottest(facts, lambda spot: spot.l2_excess.count if spot.l2_excess else 0.0)
    return cause(
        f"uncoalesced_{kind}s",
        f"Global {kind}s use {used:.0f} of the 32 bytes of each sector{spread}{at(line)}",
        "Let neighbouring threads access neighbouring addresses: order the tile along the contiguous axis, tell "
        "strides and divisibility, or turn a square tile in shared memory.",
        **{f"{kind}_bytes_per_sector": used, f"{kind}_sectors_per_request": per_request},
        needed_sectors_pct=needed,
        line=line,
    )


def wrong_mma(facts: Facts) -> Cause | None:
    """Products of single warps on a chip that has those of warpgroups: `hmma` is only told where gmma is counted too.

    Share of the peak: Luo et al., "Dissecting the NVIDIA Hopper Architecture through Microbenchmarking" (2025).
    """
    if facts.profile.mma != "hmma":
        return None
    tensor = facts.profile.tensor_pct
    return cause(
        "wrong_mma",
        "Matrix products run as those of one warp (mma.sync), which reach some 60 % of what Hopper's warpgroup "
        f"products do; the tensor pipe is busy {pct(tensor)}",
        "Use at least 4 warps, BLOCK_M of 64 or more, and operands straight from loads in fp16, bf16, tf32 or fp8.",
        mma="hmma",
        tensor_pct=tensor,
        threads=facts.threads,
    )


def no_tensor_core(facts: Facts) -> Cause | None:
    """Much arithmetic for each byte, on plain cores that HighPipeUtilization calls busy."""
    fma = next((pipe.pct for pipe in facts.profile.pipes if pipe.name == "fma"), None)
    work = facts.work
    if facts.profile.mma != "none" or fma is None or fma < LATENCY_PCT or work is None:
        return None
    if work.flops is None or not work.bytes or work.flops / work.bytes < FLOPS_PER_BYTE:
        return None
    return cause(
        "no_tensor_core",
        f"{work.flops / work.bytes:.0f} operations a byte run on plain cores: their fma pipe is busy {pct(fma)}, no "
        "tensor core works",
        "Write the products as tl.dot on tiles of at least 64 by 16 by 16, with input_precision='tf32' for fp32.",
        mma="none",
        fma_pct=fma,
        flops_per_byte=work.flops / work.bytes,
    )


def bank_conflicts(facts: Facts) -> Cause | None:
    """SharedMemoryConflicts."""
    share = facts.profile.bank_conflict_pct
    if share is None or share < CONFLICTS_PCT:
        return None
    line = hottest(facts, lambda spot: spot.shared_excess.count if spot.shared_excess else 0.0)
    return cause(
        "bank_conflicts",
        f"{share:.0f} % of the passes through shared memory come from bank conflicts{at(line)}",
        "Change the tile's shape or order so that a warp's threads meet different banks, or avoid the layout change.",
        bank_conflict_pct=share,
        line=line,
    )
