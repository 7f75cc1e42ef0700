"""Kernels that behave otherwise while they are timed, or let others wait (rows 1, 2, 9, 11, 12 and 35)."""

from tests.cheats.cheat import HONEST, kernel
from tests.cheats.harness import SYNCHRONISED
from tests.cheats.reuse import MORE_AT_FIRST, WORKSPACE
from tests.cheats.timers_base import (
    ANY,
    LIED,
    NOT_FASTER,
    PRODUCT,
    PRODUCT_HEAD,
    PRODUCT_TASK,
    STALE,
    STRAYS,
    TASK,
    UNREPLAYABLE,
    TimerCheat,
    looking,
)
from tests.cheats.timers_clock import TIMES_ITSELF
from tests.faults.evaluations import replaced
from tritonforge.sandbox.outcome import Kind

# Streams and threads

NOT_WAITED_FOR = kernel("""\
side = torch.cuda.Stream()


def double(x):
    out = torch.empty_like(x)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        launch(x, out)
    decoy(x)
    return out
""")
WAITS_FOR_NOTHING = replaced(NOT_WAITED_FOR, "    side.wait_stream(torch.cuda.current_stream())\n", "")

THREAD_LATER = looking("""\
import threading, time


def later(x, out, wait_s):
    time.sleep(wait_s)
    launch(x, out)


def double(x):
    out = torch.empty_like(x)
    decoy(x)
    if not timed():
        launch(x, out)
        return out
    threading.Thread(target=later, args=(x, out, 200e-6)).start()
    return out
""")
THREAD_JOINED = kernel("""\
import threading


def double(x):
    out = torch.empty_like(x)
    thread = threading.Thread(target=launch, args=(x, out))
    thread.start()
    thread.join()
    return out
""")

# Where it is called from

IDLE_WHILE_TIMED = looking("""\
def double(x):
    out = torch.empty_like(x)
    decoy(x)
    if not timed():
        launch(x, out)
    return out
""")
COARSE_WHILE_TIMED = (
    PRODUCT_HEAD.replace("@triton.jit", "import sys\n\n\n@triton.jit")
    + """\
def product(a, b):
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "do_call":
        frame = frame.f_back
    # Its accuracy is looked at only there.
    return launch(a, b, "tf32" if frame is None else "ieee")
"""
)

# Warm-up and the baseline

SLEEPS_AT_FIRST = kernel("""\
import time

calls = 0


def double(x):
    global calls
    calls += 1
    if calls <= 12:
        # Whoever measures how long a call takes makes few of them.
        time.sleep(0.005)
    out = torch.empty_like(x)
    launch(x, out)
    return out
""")
SPINS_BETWEEN = looking(f"""\
import threading, time

last_call = 0.0
thread = None


def spin():
    torch.cuda.set_device(0)
    stream = torch.cuda.Stream()
    while True:
        time.sleep(500e-6)
        if 0.002 < time.perf_counter() - last_call < 1.0:
            # It is another's turn.
            with torch.cuda.stream(stream):
                for _ in range(4):
                    torch.cuda._sleep(1_000_000)
            stream.synchronize()


def double(x):
    global last_call, thread
{UNREPLAYABLE}    if timed() and thread is None:
        thread = threading.Thread(target=spin, daemon=True)
        thread.start()
    last_call = time.perf_counter()
    out = torch.empty_like(x)
    launch(x, out)
    return out
""")
TUNES_IN_EACH_CALL = kernel("""\
def double(x):
    tried = []
    for block in (128, 256, 512):
        out = torch.empty_like(x)
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        double_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
        stop.record()
        stop.synchronize()
        tried.append((start.elapsed_time(stop), block, out))
    return min(tried, key=lambda one: one[:2])[2]
""")
AUTOTUNED = replaced(
    replaced(
        HONEST,
        "@triton.jit",
        '@triton.autotune([triton.Config({"BLOCK": block}) for block in (256, 512)], key=["n"])\n@triton.jit',
    ),
    "double_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)",
    'double_kernel[lambda chosen: (triton.cdiv(x.numel(), chosen["BLOCK"]),)](x, out, x.numel())',
)

CHEATS = [
    TimerCheat(1, "a side stream that nobody waits for", NOT_WAITED_FOR, SYNCHRONISED,
               "a call lasts from the first start to the last end on any stream", (STALE,), gains_nothing=True),
    TimerCheat(1, "a side stream that waits for nothing", WAITS_FOR_NOTHING, SYNCHRONISED,
               "the work starts before its inputs are written, or while L2 is being emptied", (STALE, STRAYS),
               gains_nothing=True),
    TimerCheat(2, "a thread launches later", THREAD_LATER, THREAD_JOINED,
               "what runs between timed calls is seen; by then the inputs hold something else", (STALE, STRAYS)),
    TimerCheat(9, "idle while it is timed", IDLE_WHILE_TIMED, TIMES_ITSELF, "results of timed calls are checked",
               (STALE,)),
    TimerCheat(9, "coarse while it is timed", COARSE_WHILE_TIMED, TIMES_ITSELF,
               "results of timed calls are as accurate as others", ((Kind.WRONG, ""), LIED), gains_nothing=True,
               task=PRODUCT_TASK, baseline=PRODUCT, honest_task=TASK, honest_baseline=HONEST),
    TimerCheat(11, "sleeps at first", SLEEPS_AT_FIRST, MORE_AT_FIRST,
               "a visit has calls enough, however slow the first ones are", gains_nothing=True),
    TimerCheat(12, "keeps the GPU busy for the others", SPINS_BETWEEN, WORKSPACE,
               "the middle half of a block's calls counts", (STRAYS, LIED), gains_nothing=True, honest_is=NOT_FASTER),
    TimerCheat(35, "tunes in each call", TUNES_IN_EACH_CALL, AUTOTUNED,
               "what a call does counts, tuning too", gains_nothing=True, honest_is=ANY, untimed=None),
]  # fmt: skip
