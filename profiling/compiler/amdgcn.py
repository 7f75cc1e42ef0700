"""What a kernel's amdgcn says: the assembly that LLVM writes for AMD's GPUs, with what the kernel takes at its end.

Counts are of instructions in the text, not of executions. The text comes from a worker and is not trusted: everything
here takes time linear in its length and raises nothing.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ...sandbox.wire import Wire

KINDS_LIMIT: Final = 16
"""Of matrix instructions: a kernel has one or two."""
FIELDS: Final = 7
"""Of the metadata that are read here."""
_HASH_DIGITS: Final = 16

_INSTRUCTION = re.compile(r"\s+([a-z]\w{1,63})\b([^;]*)")
_MEMORY = re.compile(r"(?:global|buffer|flat)_(load|store|atomic)_(lds_)?(\w+)")
_WIDTHS: Final = (
    (re.compile(r"(?:dwordx4|b128)"), 16),
    (re.compile(r"(?:dwordx3|b96)"), 12),
    (re.compile(r"(?:dwordx2|b64)"), 8),
    (re.compile(r"(?:dword|b32)"), 4),
    (re.compile(r"[us]?(?:short|16|b16)"), 2),
    (re.compile(r"(?:d16_)?[usi]?(?:byte|8|b8)"), 1),
)
_SPILL = re.compile(r"; (\d{1,9})-byte Folded Spill")
_KERNEL = re.compile(r"\s*\.amdhsa_kernel\s+(\S{1,512})")
_FUNCTION = re.compile(r"\s*\.type\s+([^\s,]{1,512}),@function")
# AMDGPU usage guide of LLVM, "Code Object V3+ Kernel Metadata Map".
_METADATA = re.compile(
    r"\s*(?:- )?\.(vgpr_count|agpr_count|sgpr_count|vgpr_spill_count|sgpr_spill_count|private_segment_fixed_size"
    r"|group_segment_fixed_size):\s+(\d{1,9})\s*"
)
_METADATA_NAME = re.compile(r"\s*(?:- )?\.name:\s+'?([^\s']{1,512})'?\s*")
_WAVES = re.compile(r"; Occupancy: (\d{1,3})\s*")
# Positions in the source, labels and unwinding for debuggers move with every blank line and change nothing; sizes, and
# what a kernel takes, only repeat what the code says.
_POSITION = re.compile(r"\.(?:loc|file|cfi_\w+|ident|size|set)\b|\.L(?:tmp|func_)\w*:")
_SYMBOL = re.compile(r"[A-Za-z_$][\w$.]*")


class AmdFacts(Wire):
    """What only code for AMD's GPUs has."""

    vgprs: int
    """Vector registers per thread, accumulation registers among them."""
    agprs: int
    """Accumulation registers of those."""
    sgprs: int
    """Scalar registers per wave."""
    vgpr_spills: int
    """Stores of a vector register to where it is parked."""
    sgpr_spills: int
    """The same for scalar registers, which mostly go to lanes of a vector register."""
    mfma: dict[str, int]
    """Matrix instructions by name, such as `v_mfma_f32_32x32x8_bf16`, with how often each occurs."""
    loads_to_lds: int
    """Loads that go to shared memory without passing registers."""
    cache_fences: int
    """Write-backs and invalidations of caches (`buffer_wbl2`, `buffer_inv`): what atomics that order memory come
    with."""


@dataclass(frozen=True, slots=True)
class AmdgcnUsage:
    """What a kernel takes, from the metadata that goes into its code object."""

    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    lds_bytes: int


@dataclass(frozen=True, slots=True)
class AmdgcnFacts:
    """Facts of one kernel's amdgcn. Widths map bytes per lane and access to the number of such instructions,
    widest first."""

    entry: str | None
    usage: AmdgcnUsage | None
    """None where the text does not hold the metadata of exactly one kernel."""
    waves_per_simd: int | None
    """As LLVM counts them, by registers and by the LDS that is known when compiling."""
    spill_store_bytes: int
    """Per lane: what LLVM marks as spills, going to scratch memory."""
    mfma: dict[str, int]
    """Matrix instructions by name, the most frequent first."""
    load_widths_bytes: dict[int, int]
    store_widths_bytes: dict[int, int]
    loads_to_lds: int
    """Loads that go to LDS without passing registers; they also count as loads."""
    atomics: int
    cache_fences: int
    """`buffer_wbl2` and `buffer_inv`: what atomics that order memory come with."""
    barriers: int


def parse(amdgcn: str) -> AmdgcnFacts:
    """Reads the amdgcn of one kernel, as Triton leaves it: compiler output mixed with inline assembly."""
    mfma: Counter[str] = Counter()
    loads: Counter[int] = Counter()
    stores: Counter[int] = Counter()
    to_lds = atomics = fences = barriers = spilled = 0
    for line in _code(amdgcn):
        if not (match := _INSTRUCTION.match(line)):
            continue
        name, operands = match[1], match[2]
        if spill := _SPILL.search(line):
            spilled += int(spill[1]) if name.startswith(("scratch_store", "buffer_store")) else 0
        elif name.startswith(("v_mfma_", "v_smfmac_")):
            mfma[name] += 1
        elif name in ("buffer_wbl2", "buffer_inv"):
            fences += 1
        elif name == "s_barrier":
            barriers += 1
        elif access := _MEMORY.fullmatch(name):
            kind, lds, what = access.groups()
            atomics += kind == "atomic"
            if kind == "load" and "Folded" not in line:
                loads[_width_bytes(what)] += 1
                to_lds += bool(lds) or "lds" in operands.split()
            elif kind == "store":
                stores[_width_bytes(what)] += 1
    entry = next((match[1] for line in amdgcn.splitlines() if (match := _KERNEL.match(line))), None)
    waves = [int(match[1]) for line in amdgcn.splitlines() if (match := _WAVES.fullmatch(line))]
    return AmdgcnFacts(
        entry=entry,
        usage=_usage(amdgcn, entry),
        waves_per_simd=waves[-1] if waves else None,
        spill_store_bytes=spilled,
        mfma=dict(mfma.most_common(KINDS_LIMIT)),
        load_widths_bytes=dict(sorted(loads.items(), reverse=True)),
        store_widths_bytes=dict(sorted(stores.items(), reverse=True)),
        loads_to_lds=to_lds,
        atomics=atomics,
        cache_fences=fences,
        barriers=barriers,
    )


def code_hash(amdgcn: str, num_warps: int, shared_bytes: int) -> str:
    """Hashes what a launch executes, as `identity.code_hash` does for PTX.

    Args:
        amdgcn: the kernel's, as the compiler wrote it.
        num_warps: waves of a workgroup.
        shared_bytes: LDS of a workgroup that is asked for at launch.

    Returns:
        16 hexadecimal digits.
    """
    lines = (line.partition(";")[0].strip() for line in _code(amdgcn))
    code = [line for line in lines if line and not _POSITION.match(line)]
    names = [match[1] for line in code if (match := _FUNCTION.match(line))]
    functions = {name: f"function_{number}" for number, name in enumerate(names)}
    text = "\n".join(_SYMBOL.sub(lambda match: functions.get(match[0], match[0]), line) for line in code)
    whole = f"{num_warps} {shared_bytes}\n{' '.join(text.split())}"
    return hashlib.sha256(whole.encode()).hexdigest()[:_HASH_DIGITS]


def _code(amdgcn: str) -> Iterator[str]:
    """The lines up to the metadata, without debug sections."""
    inside = False
    for line in amdgcn.splitlines():
        words = line.split(maxsplit=1)
        if words and words[0] == ".amdgpu_metadata":
            return
        if words and words[0] in (".section", ".text"):
            inside = words[0] == ".section" and words[-1].startswith(".debug")
        if not inside:
            yield line


def _usage(amdgcn: str, entry: str | None) -> AmdgcnUsage | None:
    metadata = amdgcn.partition(".amdgpu_metadata")[2].partition(".end_amdgpu_metadata")[0].splitlines()
    values = [(match[1], int(match[2])) for line in metadata if (match := _METADATA.fullmatch(line))]
    of = dict(values)
    named = sum(match[1] == entry for line in metadata if (match := _METADATA_NAME.fullmatch(line)))
    if named != 1 or len(of) < FIELDS or len(values) > FIELDS:
        return None
    return AmdgcnUsage(
        vgprs=of["vgpr_count"],
        agprs=of["agpr_count"],
        sgprs=of["sgpr_count"],
        vgpr_spills=of["vgpr_spill_count"],
        sgpr_spills=of["sgpr_spill_count"],
        scratch_bytes=of["private_segment_fixed_size"],
        lds_bytes=of["group_segment_fixed_size"],
    )


def _width_bytes(what: str) -> int:
    """Bytes that one lane moves: `dwordx4` is 16; 0 where the name does not say."""
    return next((width for pattern, width in _WIDTHS if pattern.match(what)), 0)
