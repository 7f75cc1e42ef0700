"""Cheats against the clock itself (rows 3 to 5, and 8): patched timers and records, marks, forged replies."""

from tests.cheats.cheat import kernel
from tests.cheats.timers_base import LIED, NOT_FASTER, STALE, STRAYS, UNREPLAYABLE, TimerCheat, looking
from tritonforge.sandbox.outcome import Kind

# Clocks

PATCHES_CLOCKS = kernel("""\
import time

for name, half in [("perf_counter", lambda now: now / 2), ("perf_counter_ns", lambda now: now // 2)]:
    original = getattr(time, name)
    setattr(time, name, lambda original=original, half=half: half(original()))
elapsed = torch.cuda.Event.elapsed_time
if hasattr(torch._C, "_CudaEventBase") and torch.version.cuda:
    torch.cuda.Event.elapsed_time = lambda self, other: elapsed(self, other) / 2


def double(x):
    out = torch.empty_like(x)
    launch(x, out)
    return out
""")
NEVER_WAITS = looking("""\
def double(x):
    if measurement():
        torch.cuda.synchronize = lambda *args: None
        modules("measure")[0].synchronize = lambda: None
    out = torch.empty_like(x)
    launch(x, out)
    return out
""")
TIMES_ITSELF = looking("""\
import atexit, time

atexit.register(lambda: None)
space = {}
exec("def now():\\n    return time.perf_counter()", {"time": time}, space)
calls = []


def double(x):
    started = space["now"]()
    out = torch.empty_like(x)
    launch(x, out)
    calls.append((getattr(time, "perf_counter")() - started, timed() is not None, len(modules("measure"))))
    return out
""")
"""Everything that cheats do with clocks, frames and modules, and nothing of it changes anything."""

CUPTI_OFF = looking(f"""\
import ctypes

KERNELS = 10
cupti = None


def library():
    global cupti
    if cupti is None:
        lines = open("/proc/self/maps").read().splitlines()
        cupti = ctypes.CDLL(next(line.split(maxsplit=5)[5] for line in lines if "libcupti" in line))
    return cupti


def double(x):
{UNREPLAYABLE}    out = torch.empty_like(x)
    if not timed():
        launch(x, out)
        return out
    decoy(x)
    library().cuptiActivityDisable(KERNELS)
    launch(x, out)
    library().cuptiActivityEnable(KERNELS)
    return out
""")

HALVE = """\
def halved(sample):
    return {key: value / 2 if key.endswith("_us") else value for key, value in sample.items()}


for module in modules("measure"):
    if not hasattr(module, "whole"):
        module.whole = module._sample
        module._sample = lambda activities, whole=module.whole: halved(whole(activities))
"""
HALVES_SAMPLES = looking(f"""\
{HALVE}

def double(x):
{UNREPLAYABLE}    out = torch.empty_like(x)
    launch(x, out)
    return out
""")
HIDES_PATCH = looking(f"""\
getattr(sys.modules["builtins"], "ex" + "ec")(bytes.fromhex("{HALVE.encode().hex()}").decode(), globals())


def double(x):
    out = torch.empty_like(x)
    launch(x, out)
    return out
""")
"""The same, where no search for names finds it; its launches can be replayed."""
WORKS_AHEAD = looking(f"""\
made = []


def work_ahead(kind):
    get_ready = kind._get_ready

    def ahead(self, layout, number):
        get_ready(self, layout, number)
        x = layout.inputs[0]
        made[:] = [torch.empty_like(x)]
        launch(x, made[0])

    kind.ahead, kind._get_ready = True, ahead


def double(x):
{UNREPLAYABLE}    found = measurement()
    if found is not None and not hasattr(found, "ahead"):
        work_ahead(type(found))
    if made:
        decoy(x)
        return made.pop()
    out = torch.empty_like(x)
    launch(x, out)
    return out
""")
READS_SHORTENED = looking(f"""\
def shorten():
    for module in modules("cupti"):
        kind = module.Recorder
        if not hasattr(kind, "whole"):
            kind.whole = kind.read
            kind.read = lambda self: [
                one._replace(stop_ns=one.start_ns + 0.6 * (one.stop_ns - one.start_ns))
                if one.name == "double_kernel" else one
                for one in self.whole()
            ]


class Finder:
    def find_spec(self, name, path=None, target=None):
        shorten()
        return None


shorten()
sys.meta_path.insert(0, Finder())


def double(x):
{UNREPLAYABLE}    shorten()
    out = torch.empty_like(x)
    launch(x, out)
    return out
""")

# Marks

MARKS = """\
import ctypes

driver = None


def mark(scratch):
    global driver
    driver = driver or ctypes.CDLL("libcuda.so.1")
    stream = torch.cuda.current_stream().cuda_stream
    address, size = ctypes.c_uint64(scratch.data_ptr()), ctypes.c_size_t(scratch.numel())
    driver.cuMemsetD8Async(address, ctypes.c_ubyte(0), size, ctypes.c_void_p(stream))


"""
MARKS_ITSELF = looking(f"""\
{MARKS}
def double(x):
    out = torch.empty_like(x)
    if not timed():
        launch(x, out)
        return out
    scratch = torch.empty(timed().f_locals["self"]._mark_bytes, dtype=torch.uint8, device=x.device)
    decoy(x)
    mark(scratch)
    launch(x, out)
    mark(scratch)
    decoy(x)
    return out
""")
MARKS_LIKE_THE_HARNESS = looking(f"""\
{MARKS}
CHUNK = 1 << 24
twos = None


def double(x):
    global twos
{UNREPLAYABLE}    out = torch.empty_like(x)
    if not timed():
        launch(x, out)
        return out
    if twos is None:
        twos = torch.full((CHUNK,), 2.0, device=x.device)
    scratch = torch.empty(timed().f_locals["self"]._mark_bytes, dtype=torch.uint8, device=x.device)
    decoy(x)
    mark(scratch)
    # As inputs get their contents: the device's records show the same kernels, and no more of them.
    for start in range(0, x.numel(), CHUNK):
        torch.mul(x[start : start + CHUNK], twos, out=out[start : start + CHUNK])
    mark(scratch)
    decoy(x)
    return out
""")
FILLS = kernel("""\
def double(x):
    torch.zeros(4100, dtype=torch.uint8, device=x.device)
    out = torch.empty_like(x)
    launch(x, out)
    return out
""")

# Replies

FORGES_REPLY = looking("""\
import json, os, stat

sent = False


def forge(calls):
    us = {"kernel_us": 30.0, "device_us": 30.0, "activities": 1, "event_us": 32.0}
    samples = {"samples": [us] * calls, "kernels": {"double_kernel": 30.0}, "sm_clock_hz": 1.9e9, "strays": []}
    text = json.dumps({"ok": True, **samples, "blobs": []}).encode()
    for descriptor in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, b"TFW1" + len(text).to_bytes(4, "big") + text)
        except OSError:
            pass


def double(x):
    global sent
    frame = caller("visit") and timed()
    if frame and not sent:
        sent = True
        forge(len(frame.f_locals["contents"]))
    out = torch.empty_like(x)
    launch(x, out)
    return out
""")
CHEATS = [
    TimerCheat(3, "patches clocks", PATCHES_CLOCKS, TIMES_ITSELF,
               "device times come from CUPTI, and of a replayer that never loads the file", gains_nothing=True),
    TimerCheat(3, "patches synchronize", NEVER_WAITS, TIMES_ITSELF,
               "what still runs has no complete record, and calls without one are not taken; or its process breaks",
               ((Kind.UNAVAILABLE, "CUPTI recorded"), (Kind.REJECTED, "put nothing on the GPU"), STALE, LIED,
                (Kind.RUNTIME_ERROR, "")),
               gains_nothing=True),
    TimerCheat(3, "turns CUPTI off for the work", CUPTI_OFF, TIMES_ITSELF,
               "events around the call, and our own clock, see more than the records", (LIED,), gains_nothing=True),
    TimerCheat(3, "halves its samples", HALVES_SAMPLES, TIMES_ITSELF,
               "our own clock sees no difference where the samples do", (LIED,), gains_nothing=True),
    TimerCheat(3, "works before the clock starts", WORKS_AHEAD, TIMES_ITSELF,
               "our own clock sees no difference where the samples do", (LIED, STRAYS), gains_nothing=True),
    TimerCheat(3, "marks of its own", MARKS_ITSELF, FILLS,
               "there are two marks for each call; what lies beside a call is seen", (STRAYS, LIED),
               honest_is=NOT_FASTER),
    TimerCheat(3, "marks of its own around familiar kernels", MARKS_LIKE_THE_HARNESS, FILLS,
               "there are two marks for each call", (STRAYS, LIED), gains_nothing=True, honest_is=NOT_FASTER),
    TimerCheat(4, "hides the patch", HIDES_PATCH, TIMES_ITSELF,
               "its launches are replayed; an entry that is faster than its own launches is not believed", (LIED,),
               gains_nothing=True),
    TimerCheat(5, "forges a reply", FORGES_REPLY, TIMES_ITSELF,
               "each request has one reply, of its own form", (LIED,)),
    TimerCheat(8, "an import hook shortens records", READS_SHORTENED, TIMES_ITSELF,
               "our own clock sees no difference where the samples do", (LIED,), gains_nothing=True),
]  # fmt: skip
