# pyright: basic
"""Counts what a GPU does, launch by launch, through CUPTI's Range Profiler: in this process, without Nsight Compute.

Each launch of a kernel is a range ("auto range"). Counters that don't fit into one pass are collected in several, for
which the caller runs the same launches again ("user replay"). Needs CUPTI of CUDA 12.6 or newer.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import cupti_structs as structs

FUNCTIONS = (
    "cuptiGetVersion",
    "cuptiProfilerInitialize",
    "cuptiDeviceGetChipName",
    "cuptiProfilerHostInitialize",
    "cuptiProfilerHostDeinitialize",
    "cuptiProfilerHostConfigAddMetrics",
    "cuptiProfilerHostGetConfigImageSize",
    "cuptiProfilerHostGetConfigImage",
    "cuptiProfilerHostGetNumOfPasses",
    "cuptiProfilerHostEvaluateToGpuValues",
    "cuptiRangeProfilerEnable",
    "cuptiRangeProfilerDisable",
    "cuptiRangeProfilerGetCounterDataSize",
    "cuptiRangeProfilerCounterDataImageInitialize",
    "cuptiRangeProfilerSetConfig",
    "cuptiRangeProfilerStart",
    "cuptiRangeProfilerStop",
    "cuptiRangeProfilerDecodeData",
    "cuptiRangeProfilerGetCounterDataInfo",
)
INVALID_PARAMETER = 1
INVALID_METRIC_NAME = 17
UNKNOWN_METRIC = frozenset({INVALID_PARAMETER, INVALID_METRIC_NAME})
"""What a name that the chip does not have gives: the first one with CUDA 12.8 and 13.0, the second by the header."""
UNKNOWN_CHIP = frozenset({INVALID_PARAMETER, 46})
"""What a chip that CUPTI does not know gives: CUDA 12.8; CUDA 13.0 (CUPTI_ERROR_INVALID_CHIP_NAME)."""
FORBIDDEN = frozenset({35, 40})
"""CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, also of virtual devices. Numbers as in cupti_result.h, here and below."""
BUSY = frozenset({26, 36, 39})
"""CUPTI_ERROR_HARDWARE_BUSY, OLD_PROFILER_API_INITIALIZED and MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED."""
UNSUPPORTED = frozenset({14, 27, 33, 38, 41, 42, 43, 44, 45})
"""Drivers, devices and chips that CUPTI can't count on: too old or new, virtual, MIG, confidential computing, WSL."""
FORBIDDEN_MESSAGE = "the driver restricts GPU performance counters to administrators"


class Unavailable(Exception):
    """This machine can't count: what is in the way, and which sort of obstacle it is."""

    def __init__(self, code: str, message: str, result: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.result = result
        """CUPTI's own number, where it gave one."""


class Counts(NamedTuple):
    """What was counted."""

    passes: int
    """How often the launches ran; 0: there was nothing to count."""
    launches: int
    """How many were seen, in whichever pass there were most."""
    values: list[dict[str, float]]
    """By metric, for each launch, in their order: as many as were asked for at most, and none where other launches
    were seen than were expected. Infinite or NaN where the counters don't tell."""
    absent: dict[str, str]
    """Metric -> why no launch has it."""


def count(
    cupti: Any,
    metrics: Sequence[str],
    prepare: Callable[[], Any],
    launch: Callable[[Any], object],
    *,
    device: int,
    context: int,
    launches: int,
    launches_told: int,
) -> Counts:
    """Count metrics of each kernel that ``launch`` starts.

    All is disabled and given back at the end, but for what CUPTI loads once for a process.

    Args:
        cupti: the library.
        metrics: names, as Nsight Compute has them, each once.
        prepare: called before each pass; what it does is not counted.
        launch: called once a pass with what ``prepare`` returned; starts the same kernels each time and waits for them.
        device: its index.
        context: the address of the CUDA context.
        launches: how many are expected in each pass.
        launches_told: how many launches' values are wanted.

    Raises:
        Unavailable: it can't be done here.
        Exception: whatever ``prepare`` or ``launch`` raises.
    """
    library = _Library(cupti)
    _initialize(cupti)
    chip = library.do("cuptiDeviceGetChipName", structs.CHIP_NAME, deviceIndex=device).pChipName
    with contextlib.ExitStack() as stack:
        host, absent = _schedule(library, chip, list(metrics), stack)
        if host is None:
            return Counts(0, launches, [], absent)
        # Room for one more tells if there are more.
        target = _Target(library, context, host, launches + 1, stack)
        passes = 1
        while not target.one_pass(functools.partial(launch, prepare())):
            passes += 1
            if passes > host.passes:
                raise Unavailable("other", f"CUPTI wants more than the {host.passes} passes that it has announced")
        found = target.decode()
        told = min(launches, launches_told) if found == launches else 0
        return Counts(passes, found, [target.evaluate(at) for at in range(told)], absent)


class _Library:
    """Calls with parameters in a structure, each checked."""

    def __init__(self, cupti: Any) -> None:
        """
        Raises:
            Unavailable: it is older than what is used here.
        """
        self._cupti = cupti
        missing = [name for name in FUNCTIONS if not hasattr(cupti, name)]
        if missing:
            version = ctypes.c_uint32()
            if "cuptiGetVersion" not in missing:
                cupti.cuptiGetVersion(ctypes.byref(version))
            raise Unavailable(
                "cupti_too_old",
                f"this CUPTI (API version {version.value or 'unknown'}) has no {missing[0]}: the Range Profiler came "
                "with CUDA 12.6 (24)",
            )

    def do(self, function: str, form: type[structs.Params], **fields: Any) -> Any:
        """Its parameters afterwards, results among them."""
        params = form.filled(**fields)
        result = getattr(self._cupti, function)(ctypes.byref(params))
        if result != 0:
            raise self._unavailable(function, result)
        return params

    def release(self, function: str, form: type[structs.Params], **fields: Any) -> None:
        """Give something back; that this fails helps nobody."""
        getattr(self._cupti, function)(ctypes.byref(form.filled(**fields)))

    def _unavailable(self, function: str, result: int) -> Unavailable:
        text = ctypes.c_char_p()
        self._cupti.cuptiGetResultString(result, ctypes.byref(text))
        said = f"{function}: {(text.value or b'').decode(errors='replace') or result}"
        if result in FORBIDDEN:
            return Unavailable("counters_forbidden", f"{FORBIDDEN_MESSAGE} ({said})", result)
        if result in BUSY:
            return Unavailable("counters_busy", f"another profiler holds the GPU's counters ({said})", result)
        if result in UNSUPPORTED:
            return Unavailable("unsupported_gpu", f"CUPTI can't count on this GPU or with this driver ({said})", result)
        return Unavailable("other", f"CUPTI can't count: {said}", result)


@functools.cache
def _initialize(cupti: Any) -> None:
    """Once for a process: this takes 20 ms (H200). Where it fails nothing else may be called: that would crash."""
    load_beside(cupti)
    _Library(cupti).do("cuptiProfilerInitialize", structs.PROFILER_INITIALIZE)


def load_beside(cupti: Any) -> None:
    """Load what CUPTI would load by name alone, and find in another version where a CUDA toolkit is installed."""
    folder = Path(cupti._name).parent
    for name in ("libnvperf_host.so", "libnvperf_target.so"):
        if folder.is_absolute() and (folder / name).exists():
            # Where that fails CUPTI tries by itself.
            with contextlib.suppress(OSError):
                ctypes.CDLL(str(folder / name))


class _Names:
    """Metrics as C takes them; their address holds as long as this object."""

    def __init__(self, names: Sequence[str]) -> None:
        self.all = list(names)
        self._array = (ctypes.c_char_p * len(self.all))(*(name.encode() for name in self.all))

    def __len__(self) -> int:
        return len(self.all)

    @property
    def address(self) -> int:
        return ctypes.addressof(self._array)


class _Image:
    """Zeroed memory, aligned to eight bytes."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._words = (ctypes.c_uint64 * -(-size_bytes // 8))()

    @property
    def address(self) -> int:
        return ctypes.addressof(self._words)


def _schedule(
    library: _Library, chip: bytes, metrics: list[str], stack: contextlib.ExitStack
) -> tuple[_HostSide | None, dict[str, str]]:
    """The metrics that the chip has, scheduled, unless there is none; and why the others are left out."""
    known = metrics
    if metrics and not _takes(library, chip, metrics):
        known = [metric for metric in metrics if _takes(library, chip, [metric])]
    reason = f"CUPTI knows no such metric of {chip.decode(errors='replace')}"
    absent = {metric: reason for metric in metrics if metric not in known}
    return (_HostSide(library, chip, known, stack) if known else None), absent


def _takes(library: _Library, chip: bytes, metrics: list[str]) -> bool:
    with contextlib.ExitStack() as stack:
        host_object = _host_object(library, chip, stack)
        try:
            _add(library, host_object, _Names(metrics))
        except Unavailable as error:
            if error.result not in UNKNOWN_METRIC:
                raise
            return False
    return True


def _host_object(library: _Library, chip: bytes, stack: contextlib.ExitStack) -> int:
    try:
        made = library.do(
            "cuptiProfilerHostInitialize",
            structs.HOST_INITIALIZE,
            profilerType=structs.RANGE_PROFILER,
            pChipName=chip,
        ).pHostObject
    except Unavailable as error:
        if error.result not in UNKNOWN_CHIP:
            raise
        raise Unavailable("unsupported_gpu", f"this CUPTI has no metrics of {chip.decode(errors='replace')}") from error
    stack.callback(library.release, "cuptiProfilerHostDeinitialize", structs.HOST_DEINITIALIZE, pHostObject=made)
    return made


def _add(library: _Library, host_object: int, names: _Names) -> None:
    library.do(
        "cuptiProfilerHostConfigAddMetrics",
        structs.ADD_METRICS,
        pHostObject=host_object,
        ppMetricNames=names.address,
        numMetrics=len(names),
    )


class _HostSide:
    """Which counters metrics need, and in how many passes; makes metrics of counters. Touches no GPU."""

    def __init__(self, library: _Library, chip: bytes, metrics: list[str], stack: contextlib.ExitStack) -> None:
        self._library = library
        self.names = _Names(metrics)
        self._object = _host_object(library, chip, stack)
        _add(library, self._object, self.names)
        size = library.do(
            "cuptiProfilerHostGetConfigImageSize", structs.CONFIG_IMAGE_SIZE, pHostObject=self._object
        ).configImageSize
        self.config = _Image(size)
        library.do(
            "cuptiProfilerHostGetConfigImage",
            structs.CONFIG_IMAGE,
            pHostObject=self._object,
            configImageSize=size,
            pConfigImage=self.config.address,
        )
        self.passes: int = library.do(
            "cuptiProfilerHostGetNumOfPasses",
            structs.NUMBER_OF_PASSES,
            configImageSize=size,
            pConfigImage=self.config.address,
        ).numOfPasses

    def evaluate(self, data: _Image, at: int) -> dict[str, float]:
        """Values of one range."""
        values = (ctypes.c_double * len(self.names))()
        self._library.do(
            "cuptiProfilerHostEvaluateToGpuValues",
            structs.EVALUATE,
            pHostObject=self._object,
            pCounterDataImage=data.address,
            counterDataImageSize=data.size_bytes,
            rangeIndex=at,
            ppMetricNames=self.names.address,
            numMetrics=len(self.names),
            pMetricValues=ctypes.addressof(values),
        )
        return dict(zip(self.names.all, values, strict=True))


class _Target:
    """The profiler of one CUDA context, enabled and set up until the stack is left."""

    def __init__(
        self, library: _Library, context: int, host: _HostSide, ranges: int, stack: contextlib.ExitStack
    ) -> None:
        self._library, self._host = library, host
        self._object = library.do("cuptiRangeProfilerEnable", structs.ENABLE, ctx=context).pRangeProfilerObject
        stack.callback(library.release, "cuptiRangeProfilerDisable", structs.DISABLE, pRangeProfilerObject=self._object)
        size = self._do(
            "GetCounterDataSize",
            structs.COUNTER_DATA_SIZE,
            pMetricNames=host.names.address,
            numMetrics=len(host.names),
            maxNumOfRanges=ranges,
            maxNumRangeTreeNodes=ranges,
        ).counterDataSize
        self._data = _Image(size)
        self._do(
            "CounterDataImageInitialize",
            structs.COUNTER_DATA_INITIALIZE,
            counterDataSize=size,
            pCounterData=self._data.address,
        )
        self._do(
            "SetConfig",
            structs.SET_CONFIG,
            configSize=host.config.size_bytes,
            pConfig=host.config.address,
            counterDataImageSize=size,
            pCounterDataImage=self._data.address,
            range=structs.AUTO_RANGE,
            replayMode=structs.USER_REPLAY,
            maxRangesPerPass=ranges,
            numNestingLevels=1,
            minNestingLevel=1,
            passIndex=0,
            targetNestingLevel=1,
        )

    def one_pass(self, launch: Callable[[], object]) -> bool:
        """Count while the launches run; whether that was the last pass."""
        self._do("Start", structs.START)
        with contextlib.ExitStack() as stopping:
            stopping.callback(
                self._library.release, "cuptiRangeProfilerStop", structs.STOP, pRangeProfilerObject=self._object
            )
            launch()
            stopping.pop_all()
        return bool(self._do("Stop", structs.STOP).isAllPassSubmitted)

    def decode(self) -> int:
        """Bring the counters to where `evaluate` finds them; how many launches there are, lost ones included."""
        dropped: int = self._do("DecodeData", structs.DECODE).numOfRangeDropped
        kept: int = self._library.do(
            "cuptiRangeProfilerGetCounterDataInfo",
            structs.COUNTER_DATA_INFO,
            pCounterDataImage=self._data.address,
            counterDataImageSize=self._data.size_bytes,
        ).numTotalRanges
        return kept + dropped

    def evaluate(self, at: int) -> dict[str, float]:
        """Values of one launch, by metric."""
        return self._host.evaluate(self._data, at)

    def _do(self, function: str, form: type[structs.Params], **fields: Any) -> Any:
        return self._library.do(f"cuptiRangeProfiler{function}", form, pRangeProfilerObject=self._object, **fields)
