# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false
# (Triton's own types don't pass the strict mode.)
"""Writes the recordings of this folder anew: `python tests/recordings/sass/record.py OLD_NVDISASM`.

Disassembles some of the kernels that are recorded in `../compiler` and leaves NAME.sass, file names without folders,
and NAME.live: how many registers are live at each instruction, as nvdisasm counts them with `-lrm count`. That of
Triton 3.7's wheel can't count in its own ptxas' code, so another one is named: of CUDA 12.8, as in Triton 3.5's wheel.
"""

import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget

HERE = Path(__file__).parent
WANTED = ("sin_baseline", "softmax_baseline", "matmul_short", "attention", "atomics")
_spec = importlib.util.spec_from_file_location("compiler_record", HERE.parent / "compiler" / "record.py")
compiler: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(compiler)


def record(name, example, function, signature, constants, *, aligned=None, capability=90, keep="", **options):
    """Takes what `compiler.record` takes."""
    if name not in WANTED:
        return
    source = compiler.source_of(example, function, signature, constants, aligned, capability)
    cubin = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm["cubin"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = _output(knobs.nvidia.nvdisasm.path, "-gi", "-c", "-ndf", file.name)
        live = _output(sys.argv[1], "-c", "-lrm", "count", file.name)
    (HERE / f"{name}.sass").write_text(re.sub(r'(File|at) ".*?([^/"]+)"', r'\1 "\2"', text))
    counts = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/.*?// \|\s*(\d*)\s*\|", live, flags=re.MULTILINE)
    (HERE / f"{name}.live").write_text(" ".join(count or "0" for count in counts) + "\n")


def _output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    compiler.record, compiler.two_kernels = record, lambda: None
    compiler.main()
