"""What a cheat against the clock is, the tasks that are timed, and the kernels that do them honestly."""

from dataclasses import dataclass

from tests.cheats.cheat import HONEST, IMPORTS, kernel
from tests.faults.evaluations import TASK as SMALL_TASK
from tests.faults.evaluations import replaced
from tritonforge.profiling.comparison import Outcome
from tritonforge.sandbox.outcome import Kind

STRAYS = (Kind.CHEATING, "part of none of them")
STALE = (Kind.WRONG, "results are wrong")
LIED = (Kind.CHEATING, "")

EQUAL: tuple[Outcome, ...] = ("same", "ambiguous")
NOT_FASTER: tuple[Outcome, ...] = ("same", "ambiguous", "slower")
ANY: tuple[Outcome, ...] = ("same", "ambiguous", "slower", "faster")

TASK = replaced(
    SMALL_TASK,
    '{"train": {"n": 1000, "small": True}}',
    '{"large": {"n": 1 << 25}, "check": {"n": 1000, "small": True}}',
)
"""128 MiB are read and as much is written: about 75 us on an H200. It does not say what work there is, so the speed of
light stops nothing."""


@dataclass(frozen=True)
class TimerCheat:
    """A kernel file that wants to look at least 1.3 times faster than it is, and its honest twin."""

    row: int
    """Number of its kind of cheat; several are variations of one kind."""
    name: str
    hostile: str
    honest: str
    defence: str
    """What stops it."""
    found: tuple[tuple[Kind, str], ...] = ()
    """What may become of it: the result's kind, and words of the message."""
    gains_nothing: bool = False
    """It may be timed as what it is: no faster."""
    task: str = TASK
    baseline: str = HONEST
    honest_is: tuple[Outcome, ...] = EQUAL
    """What the twin may be, beside the baseline."""
    honest_task: str | None = None
    honest_baseline: str | None = None
    """The twin's, where they are others."""
    untimed: Kind | None = Kind.OK
    """What `run_correctness` says in the interpreter: most are honest until they are timed. None: it needs a GPU."""
    honest_untimed: Kind | None = Kind.OK

    @property
    def id(self) -> str:
        return f"{self.row} {self.name}"

    @property
    def twin(self) -> tuple[str, str, str]:
        """Its twin's kernel, task and baseline."""
        return self.honest, self.honest_task or self.task, self.honest_baseline or self.baseline


LOOKING = """\
import sys


def caller(*names):
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name not in names:
        frame = frame.f_back
    return frame


def timed():
    return caller("_visit")


def measurement():
    frame = caller("first_call", "_visit", "call_times")
    return None if frame is None else frame.f_locals["self"]


def modules(name):
    return [module for key, module in list(sys.modules.items()) if key.endswith("." + name)]


"""
"""Whoever runs in the process sees who calls it."""
UNREPLAYABLE = "    x[:0] + 0  # Nothing runs on the device, but torch computes: a replayer can't be used.\n"


def looking(body: str) -> str:
    """A kernel file that looks for the harness: what `cheat.kernel` has, `LOOKING`, then this."""
    return kernel(LOOKING + body)


SUMS_TASK = """\
import torch

ENTRY = "sums"
CASES = {"large": {"rows": 8192, "cols": 4096}, "check": {"rows": 8, "cols": 64, "small": True}}
TOLERANCE = {"float32": {"rtol": 1e-4, "atol": 1e-3}}


def make_inputs(rows, cols, device):
    return (torch.rand(rows, cols, device=device) + 0.5,)


def reduction(rows, cols):
    return cols


def reference(x):
    return x.sum(1)
"""
"""128 MiB are read and nearly nothing is written: about 35 us on an H200."""
SUMS_TASK_WITH_WORK = replaced(
    SUMS_TASK,
    "def reference",
    'def work(rows, cols):\n    return {"bytes": 4 * rows * (cols + 1), "flops": rows * cols}\n\n\ndef reference',
)
CACHED_TASK = replaced(SUMS_TASK, '"rows": 8192', '"rows": 1536')
"""24 MiB: half of an H200's L2."""
SUMS_HEAD = f"""\
{IMPORTS}
@triton.jit
def sums_kernel(x_ptr, out_ptr, COLS: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * COLS + tl.arange(0, COLS))
    tl.store(out_ptr + row, tl.sum(x, 0))


def launch(x, out):
    sums_kernel[(x.shape[0],)](x, out, COLS=x.shape[1])


"""
SUMS = f"""\
{SUMS_HEAD}
def sums(x):
    out = torch.empty(x.shape[0], device=x.device)
    launch(x, out)
    return out
"""

WEIGHTED_TASK = """\
import torch

ENTRY = "weighted"
CASES = {"large": {"rows": 8192, "cols": 4096}, "check": {"rows": 8, "cols": 64, "small": True}}
TOLERANCE = {"float32": {"rtol": 1e-2, "atol": 1e-1}}
ERROR_FACTOR = 1e6


def make_inputs(rows, cols, device):
    return torch.randn(cols, device=device), torch.randn(rows, cols, device=device)


def reduction(rows, cols):
    return cols


def reference(x, w):
    return (w.to(x.dtype) * x).sum(1)
"""
INTEGER_WEIGHTS_TASK = replaced(
    WEIGHTED_TASK,
    "torch.randn(rows, cols, device=device)\n",
    "torch.randint(-8, 8, (rows, cols), device=device, dtype=torch.int32)\n",
)
WEIGHTED_HEAD = f"""\
{IMPORTS}
@triton.jit
def weighted_kernel(x_ptr, w_ptr, out_ptr, COLS: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, COLS)
    w = tl.load(w_ptr + row * COLS + cols).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(w * tl.load(x_ptr + cols), 0))


def launch(x, w):
    out = torch.empty(w.shape[0], device=w.device)
    weighted_kernel[(w.shape[0],)](x, w, out, COLS=w.shape[1])
    return out


"""
WEIGHTED = f"""\
{WEIGHTED_HEAD}
def weighted(x, w):
    return launch(x, w)
"""

PRODUCT_TASK = """\
import torch

ENTRY = "product"
CASES = {"large": {"n": 1024}, "check": {"n": 64, "small": True}}
TOLERANCE = {"float32": {"rtol": 1e-2, "atol": 0.25}}


def make_inputs(n, device):
    return torch.randn(n, n, device=device), torch.randn(n, n, device=device)


def reduction(n):
    return n


def reference(a, b):
    return a @ b
"""
PRODUCT_HEAD = f"""\
{IMPORTS}
@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, HOW: tl.constexpr):
    m = tl.program_id(0) * TILE + tl.arange(0, TILE)
    n = tl.program_id(1) * TILE + tl.arange(0, TILE)
    k = tl.arange(0, BLOCK)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, N, BLOCK):
        a = tl.load(a_ptr + m[:, None] * N + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + n[None, :])
        total = tl.dot(a, b, total, input_precision=HOW)
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


def launch(a, b, how):
    n = a.shape[0]
    c = torch.empty_like(a)
    product_kernel[(n // 64, n // 64)](a, b, c, N=n, TILE=64, BLOCK=32, HOW=how)
    return c


"""
PRODUCT = f"""\
{PRODUCT_HEAD}
def product(a, b):
    return launch(a, b, "ieee")
"""
