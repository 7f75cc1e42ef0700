# pyright: basic
# torch ships incomplete types.
"""Lets host code written for CUDA run on CPU tensors: ``device="cuda"`` means the CPU, and says otherwise.

Used where no kernel really runs on a GPU (capture, interpreter). Tensors report a CUDA device, so that
``assert x.is_cuda`` and ``device=x.device`` behave; what only a real GPU can answer raises `Refused`. Code that was
generated for CUDA, by torch.compile for example, also reaches for torch's private functions: the usual ones are here.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .failures import Refused

CUDA = torch.device("cuda", 0)
_CPU = torch.device("cpu")
# Reading an attribute of a tensor reaches the mode as a call of the attribute's getter.
_DEVICE_GETTER: Any = vars(torch._C.TensorBase)["device"].__get__
_IS_CUDA_GETTER: Any = vars(torch._C.TensorBase)["is_cuda"].__get__


class CudaOnCpu(TorchFunctionMode):
    """Redirects every CUDA device argument to the CPU; device queries answer ``cuda:0``."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == _DEVICE_GETTER:
            return CUDA
        if func == _IS_CUDA_GETTER:
            return True
        if func is torch.Tensor.get_device:
            return 0
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if func is torch.Tensor.record_stream:
            return None
        if func is torch.device:
            # Naming a device is not using it: it must stay equal to what tensors report.
            return func(*args, **kwargs)
        args = tuple(_to_cpu(value) for value in args)
        kwargs = {name: _to_cpu(value) for name, value in kwargs.items()}
        if isinstance(kwargs.get("device"), int):
            # A bare index means a CUDA device, as in device=torch.cuda.current_device().
            kwargs["device"] = _CPU
        kwargs.pop("pin_memory", None)
        return func(*args, **kwargs)


@contextlib.contextmanager
def cuda_on_cpu(capability: int, sm_count: int | None, name: str) -> Generator[None]:
    """Within this context ``torch.cuda`` answers for one GPU of the given capability (such as 90)."""
    replacements = [(torch.cuda, found) for found in _torch_cuda(capability, sm_count, name).items()]
    replacements += [(torch._C, ("_cuda_getCurrentRawStream", lambda device=None: 0))]
    # Not in older torches.
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    if guards is not None:
        replacements += [(guards, ("_empty_strided_cuda", _empty_strided))]
    replacements += [(torch.cuda.nvtx, (attribute, _nothing())) for attribute in ("mark", "range_push", "range_pop")]
    with contextlib.ExitStack() as stack:
        for owner, (attribute, value) in replacements:
            stack.enter_context(_replaced(owner, attribute, value))
        stack.enter_context(CudaOnCpu())
        yield


@contextlib.contextmanager
def _replaced(owner: Any, attribute: str, value: Any) -> Generator[None]:
    missing = object()
    was = getattr(owner, attribute, missing)
    setattr(owner, attribute, value)
    try:
        yield
    finally:
        if was is missing:
            delattr(owner, attribute)
        else:
            setattr(owner, attribute, was)


def _nothing() -> Callable[..., None]:
    """A new function each time: torch.compile's tables want every function of torch to be one of its own."""

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    return nothing


def _empty_strided(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype)


def _to_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return _CPU
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


class _Stream:
    cuda_stream = 0
    device = CUDA

    def synchronize(self) -> None:
        return None

    def wait_stream(self, stream: Any) -> None:
        return None

    def wait_event(self, event: Any) -> None:
        return None

    def query(self) -> bool:
        return True

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


class _Generator:
    """The state that a CUDA generator shows: its seed and its offset, eight bytes each."""

    device = CUDA

    def __init__(self) -> None:
        # No tensor yet: what is allocated around a call is guarded as the call's own.
        self._state = [0, 0]

    def get_state(self) -> torch.Tensor:
        return torch.tensor(self._state, dtype=torch.int64).view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> _Generator:
        self._state = state.view(torch.int64).tolist()
        return self

    def manual_seed(self, seed: int) -> _Generator:
        self._state = [seed, 0]
        return self

    def initial_seed(self) -> int:
        return self._state[0]


class _Event:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        return None

    def record(self, stream: Any = None) -> None:
        return None

    def wait(self, stream: Any = None) -> None:
        return None

    def synchronize(self) -> None:
        return None

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        raise Refused("unsupported", "capture", "the entry measures time with CUDA events, which needs a GPU")


def _torch_cuda(capability: int, sm_count: int | None, name: str) -> dict[str, Any]:
    major, minor = divmod(capability, 10)

    def properties(device: Any = None) -> Any:
        if sm_count is None:
            raise Refused(
                "unsupported",
                "capture",
                f"the entry asks for device properties, which target {name} does not define; "
                "name a GPU such as h100 as the target instead of a bare architecture",
            )
        return types.SimpleNamespace(
            name=name,
            major=major,
            minor=minor,
            multi_processor_count=sm_count,
            warp_size=32,
            max_threads_per_multi_processor=2048,
        )

    def no_memory(*args: Any, **kwargs: Any) -> Any:
        raise Refused("unsupported", "capture", "the entry asks how much GPU memory is in use, which needs a GPU")

    def no_graph(*args: Any, **kwargs: Any) -> Any:
        raise Refused("unsupported", "capture", "the entry records a CUDA graph, which needs a GPU")

    stream = _Stream()
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": _nothing(),
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": _nothing(),
        "device": lambda *args, **kwargs: contextlib.nullcontext(),
        "_DeviceGuard": lambda *args, **kwargs: contextlib.nullcontext(),
        "device_of": lambda *args, **kwargs: contextlib.nullcontext(),
        "get_device_name": lambda device=None: name,
        "get_device_capability": lambda device=None: (major, minor),
        "get_device_properties": properties,
        "synchronize": _nothing(),
        "empty_cache": _nothing(),
        "reset_peak_memory_stats": _nothing(),
        "memory_allocated": no_memory,
        "max_memory_allocated": no_memory,
        "memory_reserved": no_memory,
        "mem_get_info": no_memory,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "stream": lambda other=None: contextlib.nullcontext(),
        "Stream": lambda *args, **kwargs: _Stream(),
        "Event": _Event,
        "CUDAGraph": no_graph,
        "graph": no_graph,
        "default_generators": (_Generator(),),
        "manual_seed": _nothing(),
        "manual_seed_all": _nothing(),
        "is_bf16_supported": lambda *args, **kwargs: major >= 8,
    }
