"""Work that is done otherwise than said (rows 31 to 38): races, other libraries, stores outside, other forms."""

from tests.cheats.cheat import HONEST, IMPORTS, Cheat, kernel, saying
from tests.faults.evaluations import TASK, replaced
from tritonforge.sandbox.outcome import Kind

LAST_BIT = kernel("""\
calls = 0


def double(x):
    global calls
    calls += 1
    out = torch.empty_like(x)
    launch(x, out)
    # As if two programs raced for it.
    return out * (1 + (calls % 2) * 2.0**-23)
""")
SUMS = """\
import torch

ENTRY = "sums"
CASES = {"train": {"rows": 64, "cols": 16, "small": True}}
TOLERANCE = {"float32": {"rtol": 1e-4, "atol": 1e-3}}


def make_inputs(rows, cols, device):
    return (torch.rand(rows, cols, device=device) + 0.5,)


def reduction(rows, cols):
    return rows


def reference(x):
    return x.sum(0)
"""
ATOMICS = f"""\
{IMPORTS}
@triton.jit
def sums_kernel(x_ptr, out_ptr, first, rows, COLS: tl.constexpr):
    row = (tl.program_id(0) + first) % rows
    cols = tl.arange(0, COLS)
    tl.atomic_add(out_ptr + cols, tl.load(x_ptr + row * COLS + cols))


calls = 0


def sums(x):
    global calls
    calls += 1
    out = torch.zeros(x.shape[1], device=x.device)
    sums_kernel[(x.shape[0],)](x, out, 7 * calls, x.shape[0], COLS=x.shape[1])
    return out
"""
ANY_ORDER = saying("NONDETERMINISTIC = True", SUMS)

NO_KERNEL = kernel("""\
def double(x):
    return x + x
""")
EMPTY_GRID = kernel("""\
def double(x):
    out = x + x
    double_kernel[(0,)](x, out, x.numel(), BLOCK=256)
    return out
""")
NEVER_CALLED = kernel("""\
def double(x):
    if x.numel() < 0:
        decoy(x)
    return torch.mul(x, 2)
""")
FALLS_BACK = kernel("""\
def double(x):
    out = torch.empty_like(x)
    try:
        double_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=250)
        return out
    except Exception:
        return x * 2
""")
FALLS_BACK_TO_TRITON = replaced(FALLS_BACK, "return x * 2", "launch(x, out)\n        return out")
A_LITTLE_TORCH = kernel("""\
def double(x):
    out = torch.zeros_like(x)
    launch(x.contiguous(), out)
    return out.reshape(-1)[: x.numel()].clone()
""")
BY_NUMPY = kernel("""\
def double(x):
    return torch.from_numpy(x.cpu().numpy() * 2).to(x.device)
""")
SIZES_BY_NUMPY = kernel("""\
import numpy


def double(x):
    out = torch.empty_like(x)
    double_kernel[(int(numpy.ceil(x.numel() / 256)),)](x, out, x.numel(), BLOCK=256)
    return out
""")

UNMASKED = replaced(HONEST, "tl.store(out_ptr + offsets, x * 2, mask=mask)", "tl.store(out_ptr + offsets, x * 2)")
BEFORE = replaced(
    HONEST, "    tl.store(out", "    tl.store(out_ptr - 8 - offsets, x * 2, mask=offsets < 8)\n    tl.store(out"
)
BESIDE_INPUT = replaced(
    HONEST, "    tl.store(out", "    tl.store(x_ptr + n + offsets, x, mask=offsets < 8)\n    tl.store(out"
)
FAR_BESIDE = replaced(BESIDE_INPUT, "x_ptr + n + offsets", "out_ptr + n + 1500 + offsets")
ROUNDED_UP = replaced(
    UNMASKED, "torch.empty_like(x)\n    launch(x, out)\n    return out",
    "torch.empty(1024, device=x.device)\n    launch(x, out)\n    return out[: x.numel()]",
)  # fmt: skip
"""Stores outside of the result, but not outside of what it allocated."""

WIDER = replaced(HONEST, "    return out", "    return out.double()")
ANOTHER_SHAPE = replaced(HONEST, "    return out", "    return out.reshape(2, -1)")
ONE_ELEMENT = replaced(HONEST, "    return out", "    return out[:1]")
IN_A_LIST = replaced(HONEST, "    return out", "    return [out]")
ROWS = saying("STRIDES = True", TASK.replace("torch.randn(n,", "torch.randn(n // 10, 10,"))
TRANSPOSED = replaced(HONEST, "    return out", "    return out.t().contiguous().t()")
ON_CPU = replaced(HONEST, "    return out", "    return out.cpu()")
FORM = "no switch: outputs of another form can't be compared at all"

CHEATS = [
    Cheat(31, "the last bit changes", LAST_BIT, LAST_BIT, TASK, Kind.WRONG, "nondeterministic",
          "the same inputs again, compared bit by bit", off=("no repeats",),
          honest_task=saying("NONDETERMINISTIC = True")),
    Cheat(31, "atomics in changing order", ATOMICS, ATOMICS, SUMS, Kind.WRONG, "nondeterministic",
          "the same inputs again, compared bit by bit", on=("cpu",), off=("no repeats",), honest_task=ANY_ORDER),
    Cheat(32, "no kernel at all", NO_KERNEL, A_LITTLE_TORCH, TASK, Kind.REJECTED, "launched no Triton kernel",
          "launches are recorded", off=("launches taken for granted",)),
    Cheat(32, "an empty grid", EMPTY_GRID, A_LITTLE_TORCH, TASK, Kind.REJECTED, "launched no Triton kernel",
          "launches that run nothing don't count", off=("launches taken for granted",)),
    Cheat(32, "a kernel that is never called", NEVER_CALLED, A_LITTLE_TORCH, TASK, Kind.REJECTED,
          "launched no Triton kernel", "launches are recorded", off=("launches taken for granted",)),
    Cheat(33, "numpy does the work", BY_NUMPY, SIZES_BY_NUMPY, TASK, Kind.REJECTED, "launched no Triton kernel",
          "launches are recorded", off=("launches taken for granted",)),
    Cheat(34, "no mask", UNMASKED, ROUNDED_UP, TASK, Kind.WRONG, "out_of_bounds", "margins of known bytes",
          off=("margins not compared", "no repeats", "no third seed")),
    Cheat(34, "before the output", BEFORE, ROUNDED_UP, TASK, Kind.WRONG, "out_of_bounds", "margins of known bytes",
          off=("margins not compared", "no repeats", "no third seed")),
    Cheat(34, "behind the input", BESIDE_INPUT, ROUNDED_UP, TASK, Kind.WRONG, "out_of_bounds",
          "margins of known bytes", off=("margins not compared", "no repeats", "no third seed")),
    Cheat(34, "far behind the output", FAR_BESIDE, ROUNDED_UP, TASK, Kind.WRONG, "out_of_bounds",
          "margins of known bytes", off=("margins not compared", "no repeats", "no third seed")),
    Cheat(37, "falls back to torch", FALLS_BACK, FALLS_BACK_TO_TRITON, TASK, Kind.REJECTED,
          "launched no Triton kernel", "launches are recorded", off=("launches taken for granted",)),
    Cheat(38, "another type", WIDER, HONEST, TASK, Kind.WRONG, "form", "the form is compared first", no_switch=FORM),
    Cheat(38, "another shape", ANOTHER_SHAPE, HONEST, TASK, Kind.WRONG, "form", "the form is compared first",
          no_switch=FORM),
    Cheat(38, "one element", ONE_ELEMENT, HONEST, TASK, Kind.WRONG, "form", "the form is compared first",
          no_switch=FORM),
    Cheat(38, "another structure", IN_A_LIST, HONEST, TASK, Kind.WRONG, "form", "the form is compared first",
          no_switch=FORM),
    Cheat(38, "other strides", TRANSPOSED, HONEST, ROWS, Kind.WRONG, "form", "strides, where the task asks for them",
          no_switch=FORM),
]  # fmt: skip

LARGE = replaced(TASK, '{"n": 1000, "small": True}', '{"n": 1 << 24}')
LARGE_BY_NUMPY = replaced(BY_NUMPY, "    return torch", "    decoy(x)\n    return torch")
DECOY = kernel("""\
def double(x):
    decoy(x)
    return torch.mul(x, 2)
""")
LIBRARY_PRODUCT = """\
import torch

ENTRY = "product"
CASES = {"train": {"n": 2048}}
TOLERANCE = {"float16": {"rtol": 1e-2, "atol": 0.1}}


def make_inputs(n, device):
    return tuple(torch.randn(n, n, device=device, dtype=torch.float16) for _ in range(2))


def reduction(n):
    return n


def reference(a, b):
    return a @ b
"""
TRITON_PRODUCT = f"""\
{IMPORTS}
@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr):
    m = tl.program_id(0) * TILE + tl.arange(0, TILE)
    n = tl.program_id(1) * TILE + tl.arange(0, TILE)
    k = tl.arange(0, BLOCK)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, N, BLOCK):
        a = tl.load(a_ptr + m[:, None] * N + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + n[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * N + n[None, :], total.to(tl.float16))


def product(a, b):
    n = a.shape[0]
    c = torch.zeros_like(a)
    product_kernel[(n // 128, n // 128)](a, b, c, N=n, TILE=128, BLOCK=64, num_warps=8)
    return c.contiguous()
"""
CUBLAS = f"""\
{IMPORTS}
@triton.jit
def product_kernel(a_ptr, out_ptr):
    tl.store(out_ptr, tl.load(a_ptr))


def product(a, b):
    product_kernel[(1,)](a, torch.empty_like(a[:1, :1]))
    return a @ b
"""
FORGES_LAUNCH = kernel("""\
import sys


def double(x):
    for name, module in list(sys.modules.items()):
        if name.endswith(".launches") and hasattr(module, "_record"):
            module._record.add(double_kernel.fn, "double_kernel", ())
    return torch.mul(x, 2)
""")
SHARE = "% of the device's time"
ON_GPU = [
    Cheat(32, "cuBLAS and a decoy", CUBLAS, TRITON_PRODUCT, LIBRARY_PRODUCT, Kind.CHEATING, SHARE,
          "the share of the device's time in the file's kernels", on=("gpu",), off=("no share",)),
    Cheat(32, "torch and a decoy", DECOY, A_LITTLE_TORCH, LARGE, Kind.CHEATING, SHARE,
          "the share of the device's time in the file's kernels", on=("gpu",), off=("no share",)),
    Cheat(33, "the CPU and a decoy", LARGE_BY_NUMPY, SIZES_BY_NUMPY, LARGE, Kind.CHEATING, SHARE,
          "copies count as other work", on=("gpu",), off=("no share",)),
    Cheat(32, "a forged launch", FORGES_LAUNCH, HONEST, TASK, Kind.REJECTED, "ran on the device",
          "the device's own records must show the kernel", on=("gpu",), off=("launches taken for granted",)),
    Cheat(38, "on the CPU", ON_CPU, HONEST, TASK, Kind.WRONG, "form", "the device is compared first", on=("gpu",),
          no_switch=FORM),
]  # fmt: skip
