# pyright: basic
# triton ships incomplete types.
"""Runs a Triton file on the GPU as it stands and prints what was loaded: a JSON line for each compiled kernel.

    python tests/benchmarks/loaded_kernels.py KERNEL [TASK]

With a task, the entry is called once for each case instead. Only for files that are trusted: nothing is sealed here.
"""

import ctypes
import importlib.util
import json
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from triton.compiler import CompiledKernel

ATTRIBUTES = {"registers": 4, "local_bytes": 3, "static_shared_bytes": 1}
"""Of cuFuncGetAttribute (cuda.h)."""
kernels: list[Any] = []


def main() -> None:
    """Run the file, then print."""
    remember()
    try:
        if len(sys.argv) > 2:
            call_entry(sys.argv[1], sys.argv[2])
        else:
            sys.path.insert(0, str(Path(sys.argv[1]).parent))
            runpy.run_path(sys.argv[1], run_name="__main__")
    finally:
        torch.cuda.synchronize()
        sys.stdout.write("\n")
        for kernel in kernels:
            if kernel.module is not None:
                sys.stdout.write(f"loaded {json.dumps(described(kernel))}\n")


def remember() -> None:
    """Keep all kernels that are compiled or come from Triton's cache."""
    original = CompiledKernel.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        kernels.append(self)

    CompiledKernel.__init__ = init


def call_entry(kernel: str, task: str) -> None:
    """Each case once, with inputs on the GPU."""
    entry, spec = module(kernel), module(task)
    for case in spec.CASES.values():
        values = {name: value for name, value in case.items() if name not in {"small", "weight"}}
        torch.manual_seed(0)
        inputs = spec.make_inputs(**values, device="cuda")
        function = getattr(entry, spec.ENTRY)
        _ = function(**inputs) if isinstance(inputs, dict) else function(*inputs)


def module(path: str) -> ModuleType:
    """The file as a module; Triton needs its source."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[Path(path).stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def described(kernel: Any) -> dict[str, Any]:
    """Its specialization as the capture tells it, its code, and what the driver says of the loaded function."""
    from tritonforge.profiling.compiler.identity import code_hash
    from tritonforge.sandbox.worker.capture import _divisible, _plain  # pyright: ignore[reportPrivateUsage]

    names = list(kernel.src.fn.arg_names)
    driver = ctypes.CDLL("libcuda.so.1")
    asked: dict[str, int] = {}
    for name, number in ATTRIBUTES.items():
        value = ctypes.c_int()
        assert driver.cuFuncGetAttribute(ctypes.byref(value), number, ctypes.c_void_p(kernel.function)) == 0
        asked[name] = value.value
    return {
        "symbol": kernel.name,
        "key": {
            "signature": {name: str(kind) for name, kind in kernel.src.signature.items()},
            "constexprs": {
                names[path[0]]: _plain(value)
                for path, value in kernel.src.constants.items()
                if len(path) == 1 and path[0] < len(names)
            },
            "divisible_by_16": _divisible(kernel.src, names),
            "num_warps": kernel.metadata.num_warps,
            "num_stages": kernel.metadata.num_stages,
            "num_ctas": kernel.metadata.num_ctas,
        },
        "code_hash": code_hash(kernel.asm["ptx"], kernel.metadata.num_warps, kernel.metadata.shared),
        "dynamic_shared_bytes": kernel.metadata.shared,
        **asked,
    }


if __name__ == "__main__":
    main()
