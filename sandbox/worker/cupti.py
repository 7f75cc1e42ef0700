# pyright: basic
# torch ships incomplete types.
"""Start and end of everything that the GPU did, from CUPTI's activity records, read without torch's profiler.

torch's profiler takes seconds to start in each process and records every operation of the host on the way; asked
directly, CUPTI is there in 20 ms (H200) and costs the host nothing between launches. Offsets are those of
CUpti_ActivityKernel4 and later, CUpti_ActivityMemcpy and CUpti_ActivityMemset (cupti_activity.h): newer versions only
append fields.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import struct
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .failures import Refused

MEMCPY = 1
MEMSET = 2
CONCURRENT_KERNEL = 10
KINDS = (MEMCPY, MEMSET, CONCURRENT_KERNEL)
BUFFER_BYTES = 1 << 20
ALIGNMENT = 8
FLUSH_FORCED = 1
COPY_NAMES = {1: "Memcpy HtoD", 2: "Memcpy DtoH", 8: "Memcpy DtoD", 10: "Memcpy PtoP"}


class Launch(NamedTuple):
    """How a kernel was launched."""

    grid: tuple[int, int, int]
    """Blocks in x, y and z."""
    block: tuple[int, int, int]
    """Threads a block in x, y and z."""
    registers: int
    """A thread."""
    static_shared_bytes: int
    """A block, as is the next."""
    dynamic_shared_bytes: int


class Activity(NamedTuple):
    """A kernel, copy or fill on the device's time line."""

    name: str
    start_ns: int
    stop_ns: int
    correlation: int
    """Grows with each call of the host that starts something on the device."""
    size_bytes: int | None
    """Of a copy or fill."""
    launch: Launch | None = None
    """Of a kernel."""


class Recorder:
    """Records what the device does while it is on. One for a process: CUPTI has a single set of callbacks."""

    def __init__(self) -> None:
        self._cupti = library()
        self._buffers: dict[int, Any] = {}
        self._free: list[int] = []
        self._on = False
        self._records: list[Activity] = []
        self._names: dict[int, str] = {}
        # Kept here: CUPTI holds only their addresses.
        self._requested = _REQUESTED(self._give_buffer)
        self._completed = _COMPLETED(self._take_buffer)
        self._call("cuptiActivityRegisterCallbacks", self._requested, self._completed)

    def start(self) -> None:
        """From now on, record."""
        if not self._on:
            for kind in KINDS:
                self._call("cuptiActivityEnable", kind)
        self._on = True

    def stop(self) -> None:
        """Record no more."""
        if self._on:
            for kind in KINDS:
                self._call("cuptiActivityDisable", kind)
        self._on = False

    def read(self) -> list[Activity]:
        """What has been recorded since the last reading, in the order in which the host started it.

        The device must be idle: records of what still runs are not complete.
        """
        self._call("cuptiActivityFlushAll", FLUSH_FORCED)
        found, self._records = sorted(self._records, key=lambda activity: activity.correlation), []
        return found

    def _give_buffer(self, buffer: Any, size: Any, limit: Any) -> None:
        if not self._free:
            memory = ctypes.create_string_buffer(BUFFER_BYTES + ALIGNMENT)
            address = -(-ctypes.addressof(memory) // ALIGNMENT) * ALIGNMENT
            self._buffers[address] = memory
            self._free.append(address)
        address = self._free.pop()
        buffer[0], size[0], limit[0] = address, BUFFER_BYTES, 0

    def _take_buffer(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        record = ctypes.c_void_p()
        while (
            self._cupti.cuptiActivityGetNextRecord(
                ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)
            )
            == 0
        ):
            assert record.value is not None
            self._records.append(self._parse(record.value))
        self._free.append(buffer)

    def _parse(self, address: int) -> Activity:
        (kind,) = struct.unpack("I", ctypes.string_at(address, 4))
        start, stop = struct.unpack("QQ", ctypes.string_at(address + 16, 16))
        if kind == CONCURRENT_KERNEL:
            (correlation,) = struct.unpack("I", ctypes.string_at(address + 92, 4))
            (name,) = struct.unpack("Q", ctypes.string_at(address + 104, 8))
            return Activity(self._name(name), start, stop, correlation, None, _launch(address))
        (size,) = struct.unpack("Q", ctypes.string_at(address + 8, 8))
        (correlation,) = struct.unpack("I", ctypes.string_at(address + 44, 4))
        copied = "Memset" if kind == MEMSET else COPY_NAMES.get(ctypes.string_at(address + 4, 1)[0], "Memcpy")
        return Activity(copied, start, stop, correlation, size)

    def _name(self, address: int) -> str:
        if address not in self._names:
            mangled = ctypes.string_at(address).decode("utf-8", errors="replace")
            # Triton's names are plain, and a kernel named f is no float.
            self._names[address] = torch._C._demangle(mangled) if mangled.startswith("_Z") else mangled
        return self._names[address]

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cupti, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self._cupti.cuptiGetResultString(code, ctypes.byref(text))
            shown = (text.value or b"").decode() or str(code)
            raise Refused("unsupported", "benchmark", f"CUPTI can't record device times: {name}: {shown}")


@functools.cache
def recorder() -> Recorder:
    """This process' recorder."""
    return Recorder()


@functools.cache
def library() -> Any:
    """CUPTI as torch has loaded it, else where it is installed with torch or the CUDA toolkit.

    Raises:
        Refused: it is nowhere.
    """
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = {line.split(maxsplit=5)[5] for line in maps if "libcupti.so" in line}
    beside = [found for folder in sys.path for found in glob.glob(f"{folder}/nvidia/*/lib/libcupti.so*")]
    toolkits = glob.glob("/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so*")
    for path in (*sorted(loaded), *beside, *toolkits, "libcupti.so"):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise Refused(
        "unsupported",
        "benchmark",
        "libcupti was found neither in torch's packages nor in a CUDA toolkit: no device times",
    )


def _launch(address: int) -> Launch:
    (registers,) = struct.unpack("H", ctypes.string_at(address + 6, 2))
    sizes = struct.unpack("8i", ctypes.string_at(address + 52, 32))
    return Launch(sizes[:3], sizes[3:6], registers, *sizes[6:])


_REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
