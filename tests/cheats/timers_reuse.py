"""Cheats that give results of other calls while they are timed (rows 13 to 21), or leave data where it is fast."""

from tests.cheats.cheat import IMPORTS, kernel
from tests.cheats.reuse import (
    BY_ADDRESS,
    FIFTY_CALLS,
    GRAPH,
    LAZY,
    MORE_AT_FIRST,
    NOT_LAZY,
    WHERE_IT_LIES,
    WORKSPACE,
)
from tests.cheats.timers_base import (
    CACHED_TASK,
    INTEGER_WEIGHTS_TASK,
    LIED,
    LOOKING,
    NOT_FASTER,
    STALE,
    SUMS,
    SUMS_HEAD,
    SUMS_TASK,
    SUMS_TASK_WITH_WORK,
    UNREPLAYABLE,
    WEIGHTED,
    WEIGHTED_HEAD,
    WEIGHTED_TASK,
    TimerCheat,
    looking,
)
from tests.faults.evaluations import replaced
from tritonforge.sandbox.outcome import Kind

# A copy would take as long as the work.
KEPT_BY_ADDRESS = replaced(BY_ADDRESS, "[1].clone()", "[1]")
KEPT_AFTER_FIFTY = replaced(FIFTY_CALLS, "last.clone()", "last")

BY_SOME_ELEMENTS = looking("""\
digest = last = None


def digest_of(x):
    return tuple(x[:: x.numel() // 4].tolist())


def double(x):
    global digest, last
    if timed():
        found = digest_of(x)
        if found == digest:
            decoy(x)
            return last
        digest = found
    last = torch.empty_like(x)
    launch(x, last)
    return last
""")
BY_ALL_ELEMENTS = replaced(
    BY_SOME_ELEMENTS, "tuple(x[:: x.numel() // 4].tolist())", "int(x.view(torch.int32).sum(dtype=torch.int64))"
)
ALL_CONTENTS = (
    SUMS_HEAD
    + LOOKING
    + f"""\
CONTENTS = 1 << 13
table = None


@triton.jit
def give(table_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(table_ptr + offsets, mask=offsets < n), mask=offsets < n)


def learn(contents):
    inputs = contents.make(0)
    results = torch.empty(CONTENTS, inputs[0].shape[0], device=inputs[0].device)
    for number in range(CONTENTS):
        contents.write(inputs, number)
        launch(inputs[0], results[number])
    return results


def sums(x):
    global table
{UNREPLAYABLE}    out = torch.empty(x.shape[0], device=x.device)
    if measurement() and table is None:
        table = learn(measurement()._contents)
    frame = timed()
    if frame is None:
        launch(x, out)
    else:
        n = out.numel()
        give[(triton.cdiv(n, 1024),)](table[frame.f_locals["number"] % CONTENTS], out, n, BLOCK=1024)
    return out
"""
)
"""There are so many contents that inputs can have in timed calls: as many results are soon made."""

MERGED_BLINDLY = looking("""\
last = None


def double(x):
    global last
    frame = timed()
    if frame and frame.f_locals["layout"].held:
        decoy(x)
        return last
    last = torch.empty_like(x)
    launch(x, last)
    return last
""")
MERGED = looking(f"""\
results = []


def double(x):
{UNREPLAYABLE}    frame = timed()
    if frame is None:
        out = torch.empty_like(x)
        launch(x, out)
        return out
    contents, index = frame.f_locals["self"]._contents, len(frame.f_locals["layout"].held)
    if index == 0:
        # The first call of a visit is not counted.
        inputs = contents.make(0)
        results[:] = [torch.empty_like(x) for _ in frame.f_locals["contents"]]
        for number, out in zip(frame.f_locals["contents"], results):
            contents.write(inputs, number)
            launch(inputs[0], out)
    else:
        decoy(x)
    return results[index]
""")

LEARNED_GRAPH = replaced(GRAPH, "return out.clone()", "return out")
GRAPH_OF_COPIES = kernel("""\
graph = None


def double(x):
    global graph, kept, result
    if graph is None:
        kept, result = torch.empty_like(x), torch.empty_like(x)
        launch(kept, result)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch(kept, result)
    decoy(x)
    kept.copy_(x)
    graph.replay()
    return result.clone()
""")

WEIGHTS_PACKED_ONCE = f"""\
{WEIGHTED_HEAD}{LOOKING}
packed = {{}}


def pack(w):
    return w.to(torch.float16 if w.is_floating_point() else torch.int8)


def weighted(x, w):
    if not timed():
        return launch(x, pack(w))
    place = w.data_ptr()
    if place not in packed:
        packed[place] = pack(w)
    return launch(x, packed[place])
"""
WEIGHTS_PACKED_EACH_TIME = f"""\
{WEIGHTED_HEAD}
def weighted(x, w):
    return launch(x, w.to(torch.int8))
"""

PERSISTING = (
    SUMS_HEAD
    + LOOKING
    + """\
import ctypes

PERSISTING_LIMIT, WINDOW = 6, 1
driver = side = None


class Window(ctypes.Structure):
    _fields_ = [
        ("base", ctypes.c_void_p), ("size", ctypes.c_size_t), ("share", ctypes.c_float),
        ("hit", ctypes.c_int), ("miss", ctypes.c_int),
    ]


class Value(ctypes.Union):
    _fields_ = [("window", Window), ("room", ctypes.c_char * 64)]


def keep(x, stream):
    global driver
    driver = driver or ctypes.CDLL("libcuda.so.1")
    driver.cuCtxSetLimit(PERSISTING_LIMIT, ctypes.c_size_t(32 << 20))
    value = Value(window=Window(x.data_ptr(), 4 * x.numel(), 1.0, 2, 1))
    driver.cuStreamSetAttribute(ctypes.c_void_p(stream), WINDOW, ctypes.byref(value))


def sums(x):
    global side
    out = torch.empty(x.shape[0], device=x.device)
    if not timed():
        launch(x, out)
        return out
    side = side or torch.cuda.Stream()
    main = torch.cuda.current_stream()
    keep(x, side.cuda_stream)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        launch(x, out)
    main.wait_stream(side)
    return out
"""
)
NO_FLUSH = (
    SUMS_HEAD
    + LOOKING
    + """\
def sums(x):
    if timed():
        # The harness empties L2 with it.
        torch.sum = lambda *args, **kwargs: None
    out = torch.empty(x.shape[0], device=x.device)
    launch(x, out)
    return out
"""
)
EVICT_LAST = replaced(SUMS, "tl.arange(0, COLS))\n", 'tl.arange(0, COLS), eviction_policy="evict_last")\n')

COUNTS_ON_DEVICE = f"""\
{IMPORTS}
@triton.jit
def count_kernel(state_ptr):
    known = tl.load(state_ptr) == 12345678
    count = tl.load(state_ptr + 1)
    tl.store(state_ptr, 12345678)
    tl.store(state_ptr + 1, tl.where(known, count + 1, 0))


@triton.jit
def double_kernel(x_ptr, out_ptr, state_ptr, n, BLOCK: tl.constexpr):
    if tl.load(state_ptr + 1) < 12:
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, x * 2, mask=mask)


def double(x):
    # What was in it when it was freed is what is in it when it is allocated again: also where a plan is replayed.
    state = torch.empty(2, dtype=torch.int32, device=x.device)
    out = torch.empty_like(x)
    count_kernel[(1,)](state)
    double_kernel[(triton.cdiv(x.numel(), 256),)](x, out, state, x.numel(), BLOCK=256)
    return out
"""

FASTER_THAN_LIGHT = (Kind.CHEATING, "faster than this GPU can be")
CHEATS = [
    TimerCheat(13, "results by address", KEPT_BY_ADDRESS, WHERE_IT_LIES,
               "each call gets new contents at a known address, and results of timed calls are checked",
               (STALE, (Kind.REJECTED, "put nothing on the GPU")), gains_nothing=True, untimed=Kind.WRONG),
    TimerCheat(14, "results by some elements", BY_SOME_ELEMENTS, WHERE_IT_LIES,
               "every element of an input differs from call to call", (STALE,), gains_nothing=True),
    TimerCheat(14, "results by all elements", BY_ALL_ELEMENTS, WHERE_IT_LIES,
               "contents don't come again: looking for them costs time", (STALE,), gains_nothing=True),
    TimerCheat(14, "results of all contents, made beforehand", ALL_CONTENTS, EVICT_LAST,
               "contents of a visit are known to nobody before it", (LIED, STALE), gains_nothing=True,
               task=SUMS_TASK, baseline=SUMS, honest_task=CACHED_TASK, honest_is=NOT_FASTER),
    TimerCheat(14, "the same where the work is known", ALL_CONTENTS, EVICT_LAST,
               "nothing is faster than light, or than the launches that it makes", (FASTER_THAN_LIGHT, LIED, STALE),
               gains_nothing=True,
               task=SUMS_TASK_WITH_WORK, baseline=SUMS, honest_task=CACHED_TASK, honest_is=NOT_FASTER),
    TimerCheat(15, "honest for fifty calls", KEPT_AFTER_FIFTY, MORE_AT_FIRST, "results of timed calls are checked",
               (STALE,), untimed=Kind.OK),
    TimerCheat(16, "one call's work for ten", MERGED_BLINDLY, MORE_AT_FIRST,
               "results of timed calls are checked; where it isn't believed, its launches are timed", (STALE,),
               gains_nothing=True),
    TimerCheat(16, "ten calls' work in the first", MERGED, MORE_AT_FIRST,
               "the first call counts where it is much slower than the others", (LIED,), gains_nothing=True),
    TimerCheat(17, "a learned CUDA graph", LEARNED_GRAPH, GRAPH_OF_COPIES,
               "each call gets new contents at other addresses", (STALE,), honest_is=("slower",), untimed=None,
               honest_untimed=None),
    TimerCheat(18, "weights packed once", WEIGHTS_PACKED_ONCE, WEIGHTS_PACKED_EACH_TIME,
               "contents of every floating-point input differ from call to call", (STALE,), task=WEIGHTED_TASK,
               baseline=WEIGHTED, honest_task=INTEGER_WEIGHTS_TASK, honest_is=NOT_FASTER),
    TimerCheat(18, "integer weights packed once", WEIGHTS_PACKED_ONCE, WEIGHTS_PACKED_EACH_TIME,
               "contents of every input differ from call to call", (STALE, LIED), task=INTEGER_WEIGHTS_TASK,
               baseline=WEIGHTED, honest_is=NOT_FASTER),
    TimerCheat(19, "a lazy tensor", LAZY, NOT_LAZY, "results are plain tensors, read as bytes",
               ((Kind.REJECTED, "only plain torch.Tensor is supported"),), untimed=Kind.REJECTED),
    TimerCheat(20, "lines that persist in L2", PERSISTING, EVICT_LAST,
               "persisting lines are made ordinary ones before each flush", (LIED,), gains_nothing=True,
               task=CACHED_TASK, baseline=SUMS, honest_is=NOT_FASTER),
    TimerCheat(20, "takes the flush away", NO_FLUSH, EVICT_LAST,
               "its launches are replayed; an entry that is faster than its own launches is not believed", (LIED,),
               gains_nothing=True, task=CACHED_TASK, baseline=SUMS, honest_is=NOT_FASTER),
    TimerCheat(21, "counts its calls on the device", COUNTS_ON_DEVICE, WORKSPACE, "results of timed calls are checked",
               (STALE,), gains_nothing=True, honest_is=NOT_FASTER),
]  # fmt: skip
