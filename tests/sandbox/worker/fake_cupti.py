# pyright: basic
"""A stand-in for libcupti whose device launches what a test says, and that remembers what it was asked."""

import ctypes
from collections.abc import Callable
from typing import Any

HOST, TARGET = 0x1000, 0x9000
"""Handles are addresses in these ranges."""
CONFIG_BYTES, DATA_BYTES = 12, 21
KNOWN = ("a.sum", "b.avg", "c.pct")


class FakeCupti:
    """Has the functions of libcupti that count; each answers with a result code, 0 or what ``fails`` says."""

    _name = "libcupti.so"

    def __init__(self) -> None:
        self.log: list[str] = []
        """Functions without ``cupti`` in front, in order."""
        self.fails: dict[str, int] = {}
        """By such a name."""
        self.chips = [b"GH100"]
        self.known = KNOWN
        self.passes = 1
        self.passes_wanted: int | None = None
        """If more than it has announced."""
        self.values: Callable[[str, int], float] = lambda metric, at: KNOWN.index(metric) + 100.0 * at
        """Of a metric in a range."""
        self.asked: dict[str, Any] = {}
        """Parameters of the last call of each function."""
        self.alive: set[int] = set()
        self.running = False
        self.ranges: list[int] = []
        """Launches counted in each pass."""
        self._next = HOST

    def launch(self) -> None:
        """The device starts a kernel."""
        self.log.append("launch" if self.running else "launch, not counted")
        if self.running:
            self.ranges[-1] += 1

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cupti"):
            raise AttributeError(name)
        short = name.removeprefix("cupti")
        answer = getattr(self, f"_{short}")

        def function(reference: Any) -> int:
            params = reference._obj
            assert params.structSize == type(params).STRUCT_SIZE
            assert params.pPriv is None
            self.log.append(short)
            self.asked[short] = params
            return self.fails.get(short) or answer(params) or 0

        return function

    def cuptiGetResultString(self, result: int, text: Any) -> int:
        text._obj.value = f"CUPTI_ERROR_{result}".encode()
        return 0

    def cuptiGetVersion(self, version: Any) -> int:
        version._obj.value = 23
        return 0

    def _make(self, at: int) -> int:
        self._next += 16
        self.alive.add(self._next + at)
        return self._next + at

    def _ProfilerInitialize(self, _: Any) -> None: ...

    def _DeviceGetChipName(self, params: Any) -> None:
        params.pChipName = self.chips[0]

    def _ProfilerHostInitialize(self, params: Any) -> int:
        if params.pChipName not in self.chips:
            return 46
        params.pHostObject = self._make(0)
        return 0

    def _ProfilerHostDeinitialize(self, params: Any) -> None:
        self.alive.remove(params.pHostObject)

    def _ProfilerHostConfigAddMetrics(self, params: Any) -> int:
        assert params.pHostObject in self.alive
        return 0 if set(self._names(params)) <= set(self.known) else 1

    def _ProfilerHostGetConfigImageSize(self, params: Any) -> None:
        assert params.pHostObject in self.alive
        params.configImageSize = CONFIG_BYTES

    def _ProfilerHostGetConfigImage(self, params: Any) -> None:
        assert params.configImageSize == CONFIG_BYTES
        ctypes.memmove(params.pConfigImage, b"configured!!", CONFIG_BYTES)

    def _ProfilerHostGetNumOfPasses(self, params: Any) -> None:
        assert ctypes.string_at(params.pConfigImage, params.configImageSize) == b"configured!!"
        params.numOfPasses = self.passes

    def _RangeProfilerEnable(self, params: Any) -> None:
        params.pRangeProfilerObject = self._make(TARGET)

    def _RangeProfilerDisable(self, params: Any) -> None:
        assert not self.running or "RangeProfilerStop" in self.fails
        self.alive.remove(params.pRangeProfilerObject)

    def _RangeProfilerGetCounterDataSize(self, params: Any) -> None:
        assert params.maxNumRangeTreeNodes == params.maxNumOfRanges
        assert list(self._names(params, "pMetricNames"))
        params.counterDataSize = DATA_BYTES

    def _RangeProfilerCounterDataImageInitialize(self, params: Any) -> None:
        assert params.counterDataSize == DATA_BYTES
        ctypes.memset(params.pCounterData, 0xAB, DATA_BYTES)

    def _RangeProfilerSetConfig(self, params: Any) -> None:
        assert ctypes.string_at(params.pConfig, params.configSize) == b"configured!!"
        assert ctypes.string_at(params.pCounterDataImage, params.counterDataImageSize) == b"\xab" * DATA_BYTES

    def _RangeProfilerStart(self, params: Any) -> None:
        assert params.pRangeProfilerObject in self.alive
        assert not self.running
        self.running = True
        self.ranges.append(0)

    def _RangeProfilerStop(self, params: Any) -> None:
        self.running = False
        params.isAllPassSubmitted = len(self.ranges) >= (self.passes_wanted or self.passes)

    def _RangeProfilerDecodeData(self, params: Any) -> None:
        room = self.asked["RangeProfilerSetConfig"].maxRangesPerPass
        params.numOfRangeDropped = sum(max(count - room, 0) for count in self.ranges)

    def _RangeProfilerGetCounterDataInfo(self, params: Any) -> None:
        assert params.counterDataImageSize == DATA_BYTES
        params.numTotalRanges = min(max(self.ranges), self.asked["RangeProfilerSetConfig"].maxRangesPerPass)

    def _ProfilerHostEvaluateToGpuValues(self, params: Any) -> None:
        assert params.pHostObject in self.alive
        assert params.rangeIndex < max(self.ranges)
        found = (ctypes.c_double * params.numMetrics).from_address(params.pMetricValues)
        for index, name in enumerate(self._names(params)):
            found[index] = self.values(name, params.rangeIndex)

    def _names(self, params: Any, field: str = "ppMetricNames") -> list[str]:
        names = (ctypes.c_char_p * params.numMetrics).from_address(getattr(params, field))
        return [name.decode() for name in names]
