"""Results that only look right (rows 22 to 30): inputs, constants, statistics, special cases, less precision."""

from tests.cheats.cheat import COMPARED, HONEST, IMPORTS, IN_PROCESS, Cheat, kernel, saying
from tests.faults.evaluations import TASK, replaced
from tritonforge.sandbox.outcome import Kind

UNINITIALISED = kernel("""\
def double(x):
    # Whoever computed it last may have left it here.
    out = torch.empty_like(x)
    decoy(x)
    return out
""")
UNPOISONED = kernel("""\
def double(x):
    # torch's allocation functions are not asked.
    decoy(x)
    memory = torch.UntypedStorage(4 * x.numel(), device=x.untyped_storage().device)
    return torch.empty(0, device=x.device).set_(memory)
""")
IN_TWO_PARTS = kernel("""\
def double(x):
    out = torch.empty_like(x)
    half = x.numel() // 2
    launch(x[:half], out[:half])
    launch(x[half:], out[half:])
    return out
""")

ZEROES_INPUT = kernel("""\
def double(x):
    x.zero_()
    out = torch.empty_like(x)
    launch(x, out)
    return out
""")
OVERWRITES_INPUT = kernel("""\
def double(x):
    out = torch.empty_like(x)
    launch(x, out)
    launch(x, x)
    return out
""")
IN_PLACE = kernel("""\
def double(x):
    launch(x, x)
""")
IN_PLACE_TASK = replaced(saying('IN_PLACE = ("x",)'), "    return x * 2", "    x.mul_(2)")

PAIR_TASK = replaced(TASK, "return x * 2", "return x * 2, x.clone()")
RETURNS_INPUT = kernel("""\
def double(x):
    out = torch.empty_like(x)
    launch(x, out)
    return out, x
""")
RETURNS_VIEW_OF_INPUT = replaced(RETURNS_INPUT, "return out, x", "return out, x.view(2, -1).reshape(-1).view_as(x)")
RETURNS_VIEWS = kernel("""\
def double(x):
    n = x.numel()
    both = torch.empty(2 * n + 24, device=x.device)
    launch(x, both[:n])
    both[n : 2 * n].copy_(x)
    return both[:n], both[n : 2 * n]
""")
REUSES_OUTPUT = kernel("""\
buffers = {}


def double(x):
    if x.shape not in buffers:
        buffers[x.shape] = torch.empty_like(x)
    launch(x, buffers[x.shape])
    return buffers[x.shape]
""")
REUSES_SCRATCH = replaced(REUSES_OUTPUT, "    return buffers[x.shape]", "    return buffers[x.shape].clone()")

ZEROS = kernel("""\
def double(x):
    decoy(x)
    return torch.zeros_like(x)
""")
WEAK = saying('TOLERANCE = {"float32": {"rtol": 0.0, "atol": 100.0}}')

CENTRED = """\
import torch

ENTRY = "centred"
CASES = {"train": {"rows": 4, "cols": 1024, "small": True}}
TOLERANCE = {"float32": {"rtol": 1e-3, "atol": 0.6}}


def make_inputs(rows, cols, device):
    return (torch.randn(rows, cols, device=device),)


def reference(x):
    return 3 * (x - x.mean(1, keepdim=True))
"""
CENTRED_ROUGHLY = saying("ERROR_FACTOR = 1e9", CENTRED)
CENTRES = f"""\
{IMPORTS}
@triton.jit
def centre_kernel(x_ptr, out_ptr, COLS: tl.constexpr):
    offsets = tl.program_id(0) * COLS + tl.arange(0, COLS)
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, 3 * (x - tl.sum(x, 0) / COLS))


def centred(x):
    out = torch.empty_like(x)
    centre_kernel[(x.shape[0],)](x, out, COLS=x.shape[1])
    return out
"""
TAKES_MEAN_FOR_ZERO = replaced(CENTRES, "3 * (x - tl.sum(x, 0) / COLS)", "3 * x")

SKIPS_EDGE = replaced(HONEST, "triton.cdiv(x.numel(), 256)", "x.numel() // 256")
SKIPS_EDGE_OF_ZEROS = replaced(SKIPS_EDGE, "    out = torch.empty_like(x)\n", "    out = torch.zeros_like(x)\n")
SKIPS_LAST = replaced(HONEST, "mask = offsets < n\n", "mask = offsets < n - 1\n")
PADS = kernel("""\
def double(x):
    # The grid is of whole tiles, as the last one is made whole.
    padded = torch.nn.functional.pad(x, (0, -x.numel() % 256))
    out = torch.empty_like(padded)
    double_kernel[(padded.numel() // 256,)](padded, out, padded.numel(), BLOCK=256)
    return out[: x.numel()]
""")

TYPICAL_VALUES = replaced(HONEST, "x * 2, mask", "tl.minimum(tl.maximum(x, -8.0), 8.0) * 2, mask")
KNOWN_SHAPE = kernel("""\
def double(x):
    out = torch.empty_like(x)
    if x.numel() == 1000:
        # Random numbers are never like this, but zeros are.
        launch(x if float(x[1]) != float(x[3]) else x + 1, out)
        return out
    launch(x, out)
    return out
""")
TUNED_FOR_SHAPE = kernel("""\
def double(x):
    out = torch.empty_like(x)
    block = {1000: 512}.get(x.numel(), 256)
    double_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out
""")

ROUGH = saying('TOLERANCE = {"float32": {"rtol": 1e-2, "atol": 1e-2}}')
HALF = replaced(HONEST, "x * 2, mask", "(x.to(tl.float16) * 2).to(tl.float32), mask")
BFLOAT = replaced(HONEST, "x * 2, mask", "(x.to(tl.bfloat16) * 2).to(tl.float32), mask")
HALF_ALLOWED = saying("ERROR_FACTOR = 1e6", ROUGH)
DOUBLE = replaced(HONEST, "x * 2, mask", "(x.to(tl.float64) * 2).to(tl.float32), mask")

ALL_NAN = kernel("""\
def double(x):
    decoy(x)
    return torch.full_like(x, float("nan"))
""")
SPECIAL = saying('SPECIAL_VALUES = ("nan", "inf")')
DROPS_NAN = replaced(HONEST, "x * 2, mask", "tl.where(x == x, x * 2, 0.0), mask")
DROPS_INF = replaced(HONEST, "x * 2, mask", "tl.where(tl.abs(x) > 3e38, 3e38, x * 2), mask")

CHEATS = [
    Cheat(22, "uninitialised memory", UNINITIALISED, IN_TWO_PARTS, TASK, Kind.WRONG, "values",
          "what is allocated is poisoned; the reference's memory is another process's", no_switch=IN_PROCESS),
    Cheat(22, "memory that torch did not fill", UNPOISONED, IN_TWO_PARTS, TASK, Kind.WRONG, "values",
          "the reference's memory is another process's", no_switch=IN_PROCESS),
    Cheat(23, "zeroes the inputs", ZEROES_INPUT, IN_PLACE, TASK, Kind.WRONG, "values",
          "the reference has inputs of its own", honest_task=IN_PLACE_TASK, no_switch=IN_PROCESS),
    Cheat(23, "overwrites the inputs", OVERWRITES_INPUT, IN_PLACE, TASK, Kind.WRONG, "inputs_changed",
          "inputs are compared after the call", honest_task=IN_PLACE_TASK, off=("inputs not compared",)),
    Cheat(24, "returns an input", RETURNS_INPUT, RETURNS_VIEWS, PAIR_TASK, Kind.WRONG, "aliased",
          "places of outputs and inputs", off=("places not compared",)),
    Cheat(24, "returns a view of an input", RETURNS_VIEW_OF_INPUT, RETURNS_VIEWS, PAIR_TASK, Kind.WRONG, "aliased",
          "places of outputs and inputs", off=("places not compared",)),
    Cheat(24, "returns one buffer again and again", REUSES_OUTPUT, REUSES_SCRATCH, TASK, Kind.WRONG, "reused_memory",
          "earlier outputs are kept, and places compared", off=("places not compared",)),
    Cheat(25, "zeros for a weak task", ZEROS, HONEST, WEAK, Kind.REJECTED, "these wrong results pass its tolerance",
          "the task is audited first", honest_task=TASK, off=("no audit", "only random inputs", "no accuracy")),
    Cheat(25, "zeros", ZEROS, HONEST, TASK, Kind.WRONG, "values", "every element is compared", no_switch=COMPARED),
    Cheat(26, "the mean taken for 0", TAKES_MEAN_FOR_ZERO, CENTRES, CENTRED, Kind.WRONG, "accuracy",
          "errors against float64 are as small as the reference's", off=("no accuracy", "only random inputs")),
    Cheat(26, "the mean taken for 0, roughly", TAKES_MEAN_FOR_ZERO, CENTRES, CENTRED_ROUGHLY, Kind.WRONG, "values",
          "structured and shifted inputs", off=("only random inputs",)),
    Cheat(27, "no last tile", SKIPS_EDGE, PADS, TASK, Kind.WRONG, "values", "every element is compared",
          no_switch=COMPARED),
    Cheat(27, "no last tile, of zeros", SKIPS_EDGE_OF_ZEROS, PADS, TASK, Kind.WRONG, "values",
          "every element is compared", no_switch=COMPARED),
    Cheat(27, "no last element", SKIPS_LAST, PADS, TASK, Kind.WRONG, "values", "every element is compared",
          no_switch=COMPARED),
    Cheat(28, "right for typical values", TYPICAL_VALUES, HONEST, TASK, Kind.WRONG, "values", "extreme magnitudes",
          off=("only random inputs",)),
    Cheat(28, "right for a shape's random inputs", KNOWN_SHAPE, TUNED_FOR_SHAPE, TASK, Kind.WRONG, "values",
          "structured inputs", off=("only random inputs",)),
    Cheat(29, "half precision", HALF, DOUBLE, ROUGH, Kind.WRONG, "accuracy",
          "errors against float64 are as small as the reference's", off=("no accuracy", "only random inputs")),
    Cheat(29, "bfloat16", BFLOAT, BFLOAT, ROUGH, Kind.WRONG, "accuracy",
          "errors against float64 are as small as the reference's", off=("no accuracy",), honest_task=HALF_ALLOWED),
    Cheat(30, "NaN everywhere", ALL_NAN, HONEST, TASK, Kind.WRONG, "values", "NaN agrees with nothing but NaN",
          no_switch=COMPARED),
    Cheat(30, "loses NaN", DROPS_NAN, HONEST, SPECIAL, Kind.WRONG, "values", "inputs with NaN, where the task has them",
          off=("only random inputs",)),
    Cheat(30, "loses infinities", DROPS_INF, HONEST, SPECIAL, Kind.WRONG, "values",
          "inputs with infinities, where the task has them", off=("only random inputs",)),
]  # fmt: skip

PRODUCT = """\
import torch

ENTRY = "product"
CASES = {"train": {"n": 128}}
TOLERANCE = {"float32": {"rtol": 0.05, "atol": 0.5}}


def make_inputs(n, device):
    return torch.randn(n, n, device=device), torch.randn(n, n, device=device)


def reduction(n):
    return n


def reference(a, b):
    return a @ b
"""
MULTIPLIES = f"""\
{IMPORTS}
@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n, k = tl.arange(0, N), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, N), tl.float32)
    for start in range(0, N, BLOCK):
        a = tl.load(a_ptr + m[:, None] * N + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + n[None, :])
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


def product(a, b):
    c = torch.empty_like(a)
    product_kernel[(a.shape[0] // 32,)](a, b, c, N=a.shape[0], BLOCK=32)
    return c
"""
TF32 = replaced(MULTIPLIES, '"ieee"', '"tf32"')
BFLOAT_DOT = replaced(
    MULTIPLIES, 'tl.dot(a, b, input_precision="ieee")', "tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))"
)
ON_GPU = [
    Cheat(29, "TF32", TF32, MULTIPLIES, PRODUCT, Kind.WRONG, "accuracy",
          "errors against float64 are as small as the reference's", on=("gpu",),
          off=("no accuracy", "only random inputs")),
    Cheat(29, "bfloat16 on the tensor cores", BFLOAT_DOT, MULTIPLIES, PRODUCT, Kind.WRONG, "accuracy",
          "errors against float64 are as small as the reference's", on=("gpu",),
          off=("no accuracy", "only random inputs")),
]  # fmt: skip
