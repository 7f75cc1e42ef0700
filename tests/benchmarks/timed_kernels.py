"""Kernels and tasks that `benchmark_on_gpu.py` times: from 2 us to 5 ms on an H200, with extra work to order."""

HEAD = """\
import torch
import triton
import triton.language as tl


"""
ADD = """\
@triton.jit
def add_kernel(x_ptr, out_ptr, n, programs, BLOCK: tl.constexpr):
    # Programs beyond the last do the work of the first ones once more.
    offsets = (tl.program_id(0) % programs).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1, mask=mask)


def add(x):
    out = torch.empty_like(x)
    programs = triton.cdiv(x.numel(), 1024)
    add_kernel[(programs + round(programs * EXTRA),)](x, out, x.numel(), programs, BLOCK=1024)
    return out
"""
SOFTMAX = """\
@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, rows, BLOCK: tl.constexpr):
    row = (tl.program_id(0) % rows).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < cols
    x = tl.load(x_ptr + row * cols + columns, mask=mask, other=-float("inf")).to(tl.float32)
    x = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * cols + columns, (x / tl.sum(x, 0)).to(tl.float16), mask=mask)


def softmax(x):
    out = torch.empty_like(x)
    rows, cols = x.shape
    softmax_kernel[(rows + round(rows * EXTRA),)](x, out, cols, rows, BLOCK=triton.next_power_of_2(cols), num_warps=8)
    return out
"""
MATMUL = """\
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, N, tiles, extra, TILE: tl.constexpr, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    steps = N // BLOCK
    # One step more, of zeros, in so many of a thousand tiles.
    more = extra // 1000 + (tile * 619 % 1000 < extra % 1000).to(tl.int32)
    m = tile // tiles * TILE + tl.arange(0, TILE)
    n = tile % tiles * TILE + tl.arange(0, TILE)
    k = tl.arange(0, BLOCK)
    a_ptrs = a_ptr + m[:, None] * N + k[None, :]
    b_ptrs = b_ptr + k[:, None] * N + n[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for step in range(0, steps + more):
        a = tl.load(a_ptrs, mask=(step < steps) & (k[None, :] >= 0), other=0.0)
        b = tl.load(b_ptrs, mask=(step < steps) & (k[:, None] >= 0), other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += BLOCK
        b_ptrs += BLOCK * N
    tl.store(c_ptr + m[:, None] * N + n[None, :], total.to(tl.float16))


def matmul(a, b):
    c = torch.empty_like(a)
    size = a.shape[0]
    tiles = size // 128
    extra = round(1000 * EXTRA * size / 64)
    matmul_kernel[(tiles * tiles,)](a, b, c, size, tiles, extra, TILE=128, BLOCK=64, num_warps=8, num_stages=3)
    return c
"""
STREAM = """\
@triton.jit
def stream_kernel(x_ptr, out_ptr, n, wait, BLOCK: tl.constexpr):
    # All programs run at once, and each waits first: the kernel takes just so much longer.
    zero = tl.inline_asm_elementwise(
        "{ .reg .u64 start, now; .reg .pred early; mov.u64 start, %clock64; AGAIN: mov.u64 now, %clock64;"
        " sub.u64 now, now, start; setp.lt.u64 early, now, $1; @early bra AGAIN; mov.u32 $0, 0; }",
        "=r,l", [wait.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1,
    )
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offsets = start + 16 * zero + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1, mask=mask)


def stream(x):
    out = torch.empty_like(x)
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    stream_kernel[(2 * processors,)](x, out, x.numel(), 50 + round(EXTRA * 1980), BLOCK=8192, num_warps=16)
    return out
"""
KERNELS = {"add": ADD, "softmax": SOFTMAX, "matmul": MATMUL, "stream": STREAM}
"""`stream` is for known slowdowns of short kernels."""

TASKS = {
    "add": """\
import torch

ENTRY = "add"
CASES = {"2us": {"n": 1 << 20}, "30us": {"n": 12 << 20}, "120us": {"n": 1 << 26}, "500us": {"n": 1 << 28}}


def make_inputs(n, device):
    return (torch.rand(n, device=device),)


def reference(x):
    return x + 1


def work(n):
    return {"bytes": 8 * n, "flops": n}
""",
    "softmax": """\
import torch

ENTRY = "softmax"
CASES = {
    "5us": {"rows": 1024, "cols": 4096},
    "13us": {"rows": 3072, "cols": 4096},
    "70us": {"rows": 18432, "cols": 4096},
}


def make_inputs(rows, cols, device):
    return (torch.randn(rows, cols, device=device, dtype=torch.float16),)


def reference(x):
    return torch.softmax(x, dim=-1)


def work(rows, cols):
    return {"bytes": 4 * rows * cols, "flops": 5 * rows * cols}
""",
    "matmul": """\
import torch

ENTRY = "matmul"
CASES = {"20us": {"size": 1536}, "100us": {"size": 3072}, "5ms": {"size": 11264}}


def make_inputs(size, device):
    return tuple(torch.randn(size, size, device=device, dtype=torch.float16) for _ in range(2))


def reduction(size):
    return size


def reference(a, b):
    return a @ b


def work(size):
    return {"bytes": 6 * size * size, "flops": 2 * size**3}
""",
    "stream": """\
import torch

ENTRY = "stream"
CASES = {"5us": {"n": 3 << 20}, "20us": {"n": 8 << 20}, "100us": {"n": 48 << 20}}


def make_inputs(n, device):
    return (torch.rand(n, device=device),)


def reference(x):
    return x + 1
""",
}


def kernel(name: str, extra: float = 0.0) -> str:
    """A kernel file.

    Args:
        name: of `KERNELS`.
        extra: share of the work that is done twice: 0.01 makes a kernel that fills the GPU 1 % slower; of ``stream``
            the microseconds at 1980 MHz that it waits.
    """
    return f"{HEAD}EXTRA = {extra!r}\n\n\n{KERNELS[name]}"
