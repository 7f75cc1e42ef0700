"""A process that has compiled already hears what the passes say, and gives standard error back."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tritonforge.sandbox.isolation import WORKER_FOLDER

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, K, stride, M: tl.constexpr, BLOCK: tl.constexpr):
    m = tl.arange(0, M)
    n = tl.arange(0, 64)
    k = tl.arange(0, BLOCK)
    total = tl.zeros((M, 64), tl.float32)
    for start in range(0, K, BLOCK):
        a = tl.load(a_ptr + m[:, None] * stride + start + k[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * 64 + n[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * 64 + n[None, :], total)
"""
OBSERVER = """\
import importlib.util, json, os, sys
spec = importlib.util.spec_from_file_location("worker_main", {main!r})
main = importlib.util.module_from_spec(spec)
spec.loader.exec_module(main)
main._load_package()
from tritonforge_worker import remarks
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from kernel import product


def build(m):
    pointers = dict.fromkeys(("a_ptr", "b_ptr"), "*fp16")
    signature = {{**pointers, "c_ptr": "*fp32", "K": "i32", "stride": "i32", "M": "constexpr", "BLOCK": "constexpr"}}
    aligned = {{(place,): [["tt.divisibility", 16]] for place in range(3)}}
    source = ASTSource(fn=product, signature=signature, constexprs={{"M": m, "BLOCK": 32}}, attrs=aligned)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={{"num_warps": 4, "num_stages": 3}})


before = dict(os.environ)
build(64)
with remarks.heard() as said:
    build(64)
with remarks.heard() as of_few_rows:
    build(16)
with remarks.heard() as nothing:
    pass
assert dict(os.environ) == before
os.write(2, b"standard error is back")
json.dump([said, of_few_rows, nothing], sys.stdout)
"""


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[list[str]], str]:
    """What three contexts heard, and what went to standard error."""
    folder: Path = tmp_path_factory.mktemp("remarks")
    (folder / "kernel.py").write_text(KERNEL)
    (folder / "observe.py").write_text(OBSERVER.format(main=str(WORKER_FOLDER / "__main__.py")))
    environment = {"TRITON_CACHE_DIR": str(folder / "cache"), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, str(folder / "observe.py")], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_process_that_has_the_kernel_in_its_cache_hears_why_its_loads_are_not_pipelined(
    observed: tuple[list[list[str]], str],
) -> None:
    (said, _, _), _ = observed
    assert any("is too small for pipelining" in line for line in said)
    assert any("Can't make dot async" in line for line in said)


def test_remarks_name_the_line(observed: tuple[list[list[str]], str]) -> None:
    (_, said, _), _ = observed
    line = KERNEL.splitlines().index("        total = tl.dot(a, b, total)") + 1
    assert any(f"kernel.py:{line}:" in one and "MMA version 3 acceleration not applied" in one for one in said)


def test_each_line_is_kept_once_and_printed_loops_are_not(observed: tuple[list[list[str]], str]) -> None:
    (said, _, _), _ = observed
    assert len(said) == len(set(said)) < 60


def test_afterwards_standard_error_is_what_it_was(observed: tuple[list[list[str]], str]) -> None:
    (*_, nothing), error = observed
    assert nothing == []
    assert error == "standard error is back"
