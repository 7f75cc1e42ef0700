"""Results of earlier calls given again (rows 13 to 21): each call gets new contents, some at old addresses."""

from tests.cheats.cheat import HEAD, HONEST, IMPORTS, Cheat, kernel
from tests.faults.evaluations import TASK, replaced
from tritonforge.sandbox.outcome import Kind

SAME_INPUTS = ("same seed", "only random inputs")

BY_ADDRESS = kernel("""\
results = {}


def double(x):
    place = (x.data_ptr(), x._version, x.shape)
    if place not in results:
        out = torch.empty_like(x)
        launch(x, out)
        # The input is kept, so that nothing else ever gets its address.
        results[place] = (x, out)
    else:
        decoy(x)
    return results[place][1].clone()
""")
BY_SHAPE = kernel("""\
results = {}


def double(x):
    if x.shape in results:
        decoy(x)
    else:
        results[x.shape] = torch.empty_like(x)
        launch(x, results[x.shape])
    return results[x.shape].clone()
""")
BY_SOME_ELEMENTS = replaced(
    replaced(BY_SHAPE, "    if x.shape in results", "    key = float(x[0])\n    if key in results"),
    "        results[x.shape] = torch.empty_like(x)\n        launch(x, results[x.shape])\n    return results[x.shape]",
    "        results[key] = torch.empty_like(x)\n        launch(x, results[key])\n    return results[key]",
)
GRID_BY_SHAPE = kernel("""\
grids = {}


def double(x):
    if x.shape not in grids:
        grids[x.shape] = (triton.cdiv(x.numel(), 256),)
    out = torch.empty_like(x)
    double_kernel[grids[x.shape]](x, out, x.numel(), BLOCK=256)
    return out
""")
WHERE_IT_LIES = kernel("""\
aligned = {}


def double(x):
    place = x.data_ptr()
    if place not in aligned:
        aligned[place] = place % 16 == 0
    out = torch.empty_like(x)
    block = 256 if aligned[place] else 128
    double_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out
""")
AT_FIRST = kernel("""\
calls = 0
last = None


def double(x):
    global calls, last
    calls += 1
    out = torch.empty_like(x)
    if calls <= 3:
        launch(x, out)
        last = out.clone()
        return out
    decoy(x)
    return last.clone()
""")
MORE_AT_FIRST = kernel("""\
calls = 0
chosen = None


def double(x):
    global calls, chosen
    calls += 1
    if chosen is None and calls == 1:
        # A tuner would try both.
        for block in (128, 256):
            double_kernel[(triton.cdiv(x.numel(), block),)](x, torch.empty_like(x), x.numel(), BLOCK=block)
        chosen = 256
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), chosen),)](x, out, x.numel(), BLOCK=chosen)
    return out
""")

WEIGHTED = """\
import torch

ENTRY = "weighted"
CASES = {"train": {"n": 1000, "small": True}}


def make_inputs(n, device):
    return torch.randn(n, device=device), torch.randn(n, device=device)


def reference(x, w):
    return x * w / (1 + torch.arange(len(x), device=x.device, dtype=x.dtype))
"""
WEIGHTS_PACKED = f"""\
{IMPORTS}
@triton.jit
def product_kernel(x_ptr, w_ptr, table_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    w = tl.load(w_ptr + offsets, mask=mask)
    divisor = tl.load(table_ptr + offsets, mask=mask, other=1.0)
    tl.store(out_ptr + offsets, x * w / divisor, mask=mask)


tables, packed = {{}}, {{}}


def weighted(x, w):
    n = x.numel()
    if n not in tables:
        tables[n] = 1 + torch.arange(n, device=x.device, dtype=x.dtype)
        packed[n] = w.clone()
    out = torch.empty_like(x)
    product_kernel[(triton.cdiv(n, 256),)](x, packed[n], tables[n], out, n, BLOCK=256)
    return out
"""
"""What depends on the shape alone may be kept, as the twin does."""

LAZY = kernel("""\
class Lazy(torch.Tensor):
    source = None

    def cpu(self):
        return (self.source * 2).cpu()

    def detach(self):
        return self.source * 2


def double(x):
    decoy(x)
    out = torch.empty_like(x).as_subclass(Lazy)
    out.source = x
    return out
""")
NOT_LAZY = kernel("""\
class Named(torch.Tensor):
    name_of_it = "result"


def double(x):
    out = torch.empty_like(x).as_subclass(Named)
    launch(x.as_subclass(Named), out)
    return out.as_subclass(torch.Tensor)
""")

KEPT_ON_DEVICE = f"""\
{IMPORTS}
@triton.jit
def double_kernel(x_ptr, out_ptr, kept_ptr, seen_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    if tl.load(seen_ptr) == 0:
        tl.store(kept_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2, mask=mask)
    tl.debug_barrier()
    tl.store(out_ptr + offsets, tl.load(kept_ptr + offsets, mask=mask), mask=mask)


state = {{}}


def double(x):
    if not state:
        state["kept"] = torch.empty_like(x)
        state["seen"] = torch.zeros(1, dtype=torch.int32, device=x.device)
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 256),)
    double_kernel[grid](x, out, state["kept"], state["seen"], x.numel(), BLOCK=256)
    state["seen"].fill_(1)
    return out
"""
WORKSPACE = replaced(KEPT_ON_DEVICE, '    state["seen"].fill_(1)\n', "")

CHEATS = [
    Cheat(13, "results by address", BY_ADDRESS, WHERE_IT_LIES, TASK, Kind.WRONG, "values",
          "the second inputs lie where the first lay", off=("new addresses",)),
    Cheat(14, "results by shape, across seeds", BY_SHAPE, GRID_BY_SHAPE, TASK, Kind.WRONG, "values",
          "every call gets new contents", off=SAME_INPUTS),
    Cheat(14, "results by some elements", BY_SOME_ELEMENTS, HONEST, TASK, Kind.WRONG, "values",
          "structured inputs agree in some elements and differ in others", off=("only random inputs",)),
    Cheat(15, "honest at first", AT_FIRST, MORE_AT_FIRST, TASK, Kind.WRONG, "values",
          "all seeds and structured inputs are checked in one process", off=SAME_INPUTS),
    Cheat(18, "weights kept", WEIGHTS_PACKED, replaced(WEIGHTS_PACKED, "packed[n], tables", "w, tables"), WEIGHTED,
          Kind.WRONG, "values", "every tensor input changes", off=SAME_INPUTS),
    Cheat(19, "lazy tensor", LAZY, NOT_LAZY, TASK, Kind.REJECTED, "only plain torch.Tensor is supported",
          "outputs are plain dense tensors, read as bytes",
          no_switch="no switch: bytes are all that leaves the process"),
    Cheat(21, "results kept on the device", KEPT_ON_DEVICE, WORKSPACE, TASK, Kind.WRONG, "values",
          "every call gets new contents", off=SAME_INPUTS),
]  # fmt: skip

GRAPH = (
    HEAD
    + """\
graph = None


def double(x):
    global graph, kept, out
    if graph is None:
        launch(x, torch.empty_like(x))
        kept = x.clone()
        out = torch.empty_like(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch(kept, out)
    decoy(x)
    graph.replay()
    return out.clone()
"""
)
"""A graph of its own for each call is slow, but does the work."""
GRAPH_EACH_TIME = replaced(GRAPH, "if graph is None:", "if True:")
ON_GPU = [
    Cheat(17, "a learned CUDA graph", GRAPH, GRAPH_EACH_TIME, TASK, Kind.WRONG, "values",
          "every call gets new contents at other addresses", on=("gpu",), off=SAME_INPUTS),
]  # fmt: skip

FIFTY_CALLS = replaced(AT_FIRST, "calls <= 3", "calls <= 50")
"""More than are checked before anything is timed."""
