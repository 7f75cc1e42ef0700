"""Which metrics a chip has, as Nsight Compute lists them, and what is wrong with a name that it hasn't. Pure."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

Kind = Literal["Counter", "Ratio", "Throughput"]

ROLLUPS: Final = ("sum", "avg", "min", "max")
_PCT: Final = tuple(f"pct_of_peak_sustained_{span}" for span in ("active", "elapsed", "region", "frame"))
_PEAKS: Final = tuple(f"peak_sustained{span}" for span in ("", "_active", "_elapsed", "_region", "_frame"))
SUBMETRICS: Final[dict[Kind, frozenset[str]]] = {
    "Counter": frozenset(
        {
            *("", "per_second", "per_cycle_active", "per_cycle_elapsed", "per_cycle_in_region", "per_cycle_in_frame"),
            *_PCT,
            *_PEAKS,
            *(f"{peak}.per_second" for peak in _PEAKS[1:]),
        }
    ),
    "Ratio": frozenset({"pct", "ratio", "max_rate"}),
    "Throughput": frozenset(_PCT),
}
"""Kind -> what may follow, for counters and throughputs after the rollup. Source: Nsight Compute's documentation,
Profiling Guide, "Metrics Structure", and the names in reports of ncu 2025.3.1."""
USUAL: Final[dict[Kind, tuple[str, ...]]] = {
    "Counter": (".sum", ".avg.per_cycle_active", ".avg.pct_of_peak_sustained_elapsed", ".sum.per_second"),
    "Ratio": (".ratio", ".pct"),
    "Throughput": (".avg.pct_of_peak_sustained_elapsed", ".avg.pct_of_peak_sustained_active"),
}

_RESOURCES: Final = ("barriers", "blocks", "registers", "shared_mem", "warps")
_FACTS: Final = (
    *(f"{what}_dim_{axis}" for what in ("block", "grid", "cluster") for axis in "xyz"),
    *("block_size", "grid_size", "thread_count", "waves_per_multiprocessor", "kernel_name", "function_pcs"),
    *("cluster_size", "cluster_max_active", "cluster_max_potential_size", "cluster_scheduling_policy"),
    *("registers_per_thread", "registers_per_thread_allocated", "barrier_count", "stack_size"),
    *("shared_mem_per_block", "shared_mem_per_block_static", "shared_mem_per_block_dynamic"),
    *("shared_mem_per_block_driver", "shared_mem_per_block_allocated", "shared_mem_config_size"),
    *(f"occupancy_limit_{resource}" for resource in _RESOURCES),
    *("occupancy_per_barrier_count", "occupancy_per_block_size", "occupancy_per_cluster_size"),
    *("occupancy_per_register_count", "occupancy_per_shared_mem_size"),
    *("occupancy_cluster_pct", "occupancy_cluster_gpu_pct", "persisting_l2_cache_size", "func_cache_config"),
    *("sm_count", "tpc_count", "tpc_enabled", "context_id", "device_id", "stream_id", "uses_cdp"),
    *("uses_green_context", "uses_mps", "uses_vgpu"),
)
LAUNCH_FACTS: Final = frozenset(
    {
        *(f"launch__{fact}" for fact in _FACTS),
        *("sm__maximum_warps_avg_per_active_cycle", "sm__maximum_warps_per_active_cycle_pct"),
        "smsp__maximum_warps_avg_per_active_cycle",
    }
)
"""What ncu knows of a launch without counting."""
_REASONS: Final = (
    *("barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard"),
    *("math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instructions", "not_selected", "selected"),
    *("short_scoreboard", "sleeping", "tex_throttle", "wait", "warpgroup_arrive"),
)
SOURCE_METRICS: Final = frozenset(
    {
        *("inst_executed", "thread_inst_executed", "thread_inst_executed_true", "smsp__pcsamp_sample_count"),
        *("smsp__pcsamp_interval_cycles", "smsp__pcsamp_dropped_bytes"),
        *("memory_l1_tag_requests_global", "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"),
        *("memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal"),
        *("memory_l2_theoretical_sectors_local", "memory_type", "memory_access_type", "memory_access_size_type"),
        *("sass__inst_executed_per_opcode", "sass__inst_executed_register_spilling"),
        *(f"sass__inst_executed_{at}_{what}" for at in ("global", "local", "shared") for what in ("loads", "stores")),
        *(f"smsp__pcsamp_warps_issue_stalled_{reason}{end}" for reason in _REASONS for end in ("", "_not_issued")),
    }
)
"""What ncu counts or samples by instruction. Source of both: reports of ncu 2025.3.1 on GH100."""

FALSE_FRIENDS: Final = {
    "sm__inst_executed_pipe_fp32": "sm__inst_executed_pipe_fma",
    "sm__inst_executed_pipe_fp16": "sm__inst_executed_pipe_fma_type_fp16",
    "sm__pipe_tensor_op_gmma_cycles_active": "sm__pipe_tensor_cycles_active",
    "sm__ops_path_tensor_src_fp16_dst_fp32": "sm__ops_path_tensor_src_fp16",
    "smsp__inst_executed_op_tma": "sm__inst_executed_pipe_tma",
    "smsp__inst_executed_op_global_atom": "smsp__sass_inst_executed_op_global_atom",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts": "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access",
    "smsp__warp_issue_stalled_memory_dependency": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active",
}
"""Names in public lists that look right -> what counts that on chips that don't have them."""
SUGGESTIONS: Final = 3
_ROW: Final = re.compile(rf"(\S+) +({'|'.join(get_args(Kind))})\b")
_CHIP: Final = re.compile(r"^Chip (\w+)", re.MULTILINE)
_NAME: Final = re.compile(r"[A-Za-z][\w.]{0,299}")


@dataclass(frozen=True, slots=True)
class ChipMetrics:
    """The metrics of one chip."""

    chip: str
    """As ncu calls it, such as `gh100`."""
    kinds: dict[str, Kind]
    """Base name -> what it is."""

    def check(self, names: Iterable[str]) -> list[str]:
        """A sentence for each name that can't be collected: what is wrong, and what to write instead."""
        return [problem for name in dict.fromkeys(names) if (problem := self._problem(name)) is not None]

    def _problem(self, name: str) -> str | None:
        if not _NAME.fullmatch(name):
            return f"{name[:100]!r} is no metric's name: give one name an entry, of letters, digits, `_` and `.`."
        base, suffix = _split(name)
        if base in LAUNCH_FACTS or base in SOURCE_METRICS:
            return f"`{base}` takes no suffix: write it without `.{suffix}`." if suffix else None
        kind = self.kinds.get(base)
        if kind is None:
            close = self._close_to(base)
            hint = f"Did you mean {_listed(close)}?" if close else "`ncu --query-metrics` lists all."
            return f"`{base}` is no metric of {self.chip}. {hint}"
        if _fits(kind, suffix):
            return None
        what = f"a {kind.lower()} has no `.{suffix}`" if suffix else f"a {kind.lower()} needs a suffix"
        return f"`{name}` can't be collected: {what}. Append {_listed(USUAL[kind])} to `{base}`."

    def _close_to(self, base: str) -> list[str]:
        """Names of the same unit before those of others."""
        if (meant := FALSE_FRIENDS.get(base)) in self.kinds:
            return [meant]
        unit = base.partition("__")[0] + "__"
        known = [*self.kinds, *LAUNCH_FACTS, *SOURCE_METRICS]
        same = difflib.get_close_matches(base, [name for name in known if name.startswith(unit)], SUGGESTIONS, 0.75)
        return same or difflib.get_close_matches(base, known, SUGGESTIONS, 0.75)


def parse(text: str) -> ChipMetrics:
    """The output of `ncu --query-metrics --chips CHIP`.

    Raises:
        ValueError: It is none, or lists several chips.
    """
    chips = _CHIP.findall(text)
    kinds: dict[str, Kind] = {}
    for line in text.splitlines():
        # A description's second line starts with spaces.
        match _ROW.match(line):
            case re.Match() as row:
                kinds[row[1]] = _kind(row[2])
            case None:
                pass
    if len(chips) != 1 or not kinds:
        raise ValueError(f"expected the list of one chip from `ncu --query-metrics --chips`, got {len(chips)} chips")
    return ChipMetrics(chips[0], kinds)


def _kind(word: str) -> Kind:
    return next(kind for kind in SUBMETRICS if kind == word)


def _split(name: str) -> tuple[str, str]:
    """Base name and suffix. Dots before `__` are part of the base, as in `LTS.TriageCompute.lts__t_sectors.sum`."""
    at = name.find(".", max(name.find("__"), 0))
    return (name, "") if at < 0 else (name[:at], name[at + 1 :])


def _fits(kind: Kind, suffix: str) -> bool:
    if kind == "Ratio":
        return suffix in SUBMETRICS[kind]
    rollup, _, rest = suffix.partition(".")
    return rollup in ROLLUPS and rest in SUBMETRICS[kind]


def _listed(names: Iterable[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
