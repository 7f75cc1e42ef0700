"""Kernels that look for the harness, or patch it (rows 3 and 6 to 10): what they want is in another process."""

from tests.cheats.cheat import HONEST, IN_PROCESS, Cheat, kernel, saying
from tests.faults.evaluations import TASK
from tritonforge.sandbox.outcome import Kind

PATCHES = kernel("""\
import importlib, sys

always = lambda *args, **kwargs: True
for owner, name in [
    (torch, "allclose"), (torch, "equal"), (torch, "isclose"), (torch.testing, "assert_close"),
    (torch.Tensor, "allclose"), (torch.Tensor, "equal"), (torch.cuda, "synchronize"), (torch.cuda, "Event"),
]:
    setattr(owner, name, always)
for name in [name for name in sys.modules if name.startswith("tritonforge")]:
    module = sys.modules[name]
    for attribute in ("compare", "differing", "broken", "judge", "accuracy"):
        if hasattr(module, attribute):
            setattr(module, attribute, lambda *args, **kwargs: [])


def agree(*args, **kwargs):
    return []


# What holds the function holds the code.
try:
    judge = importlib.import_module(f"{[n for n in sys.modules if n.endswith('.kernel_side')][0][:-12]}.judge")
    judge.compare.__code__ = agree.__code__
except (AttributeError, ImportError, IndexError, ValueError):
    pass


def double(x):
    decoy(x)
    return torch.zeros_like(x)
""")
CHECKS_ITSELF = kernel("""\
def double(x):
    out = torch.empty_like(x)
    launch(x, out)
    torch.cuda.synchronize()
    assert torch.allclose(out, x + x)
    return out
""")

SEARCHES = kernel("""\
import gc, sys


def candidates(x):
    frame = sys._getframe()
    while frame is not None:
        for name, value in {**frame.f_globals, **frame.f_locals}.items():
            if any(word in name.lower() for word in ("expect", "reference", "exact", "answer", "gold")):
                yield value
        frame = frame.f_back
    for value in gc.get_objects():
        if type(value) is torch.Tensor:
            yield value
        elif isinstance(value, dict):
            yield from (value[key] for key in ("expected", "exact", "_expected") if key in value)


def double(x):
    decoy(x)
    for value in candidates(x):
        if type(value) is torch.Tensor and value.shape == x.shape and bool((value[:4] == x[:4] * 2).all()):
            return value.clone()
    return torch.zeros_like(x)
""")
LOOKS_AT_ITSELF = kernel("""\
import gc, inspect


def double(x):
    gc.collect()
    assert inspect.currentframe().f_code.co_name == "double"
    out = torch.empty_like(x)
    launch(x, out)
    return out
""")

SEED_GUESSED = kernel("""\
made = {}
for seed in (0, 1, 42, 1234, torch.initial_seed()):
    torch.manual_seed(seed)
    x = torch.randn(1000)
    made[float(x[0])] = x * 2


def double(x):
    decoy(x)
    known = made.get(float(x[0]))
    return torch.zeros_like(x) if known is None else known.clone()
""")
SEEDS_ITSELF = kernel("""\
torch.manual_seed(0)
signs = torch.randint(0, 2, (1024,)) * 2 - 1


def double(x):
    out = torch.empty_like(x)
    launch(x, out)
    flip = signs[: x.numel()].to(x)
    return out * flip * flip
""")

HOOKS = kernel("""\
import __main__, atexit, os, signal, sys, threading

forged = b'{"ok": true, "outputs": [], "accuracy": [], "changed": [], "broken": [], "blobs": []}'


def forge(*_):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"TFW1" + len(forged).to_bytes(4, "big") + forged)
        except OSError:
            pass


class Finder:
    def find_spec(self, name, path=None, target=None):
        return None


atexit.register(forge)
sys.meta_path.insert(0, Finder())
sys.path_hooks.insert(0, Finder)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGUSR1):
    signal.signal(number, forge)
__main__.compare = __main__.judge = lambda *args, **kwargs: []
sys.unraisablehook = sys.excepthook = threading.excepthook = forge
with open("sitecustomize.py", "w") as file:
    file.write("import torch; torch.allclose = lambda *args: True")


def double(x):
    decoy(x)
    return torch.zeros_like(x)
""")
MODEST_HOOKS = kernel("""\
import atexit, signal

atexit.register(lambda: None)
signal.signal(signal.SIGUSR1, lambda *_: None)


def double(x):
    out = torch.empty_like(x)
    launch(x, out)
    return out
""")

WATCHED = "torch._C._len_torch_dispatch_stack() > 0"
"""Whether the harness looks on at what torch does."""
SLOPPY_UNWATCHED = kernel(f"""\
def double(x):
    out = torch.empty_like(x)
    launch(x, out)
    return out if {WATCHED} else out + 1
""")
CHANGES_UNWATCHED = kernel(f"""\
def double(x):
    out = torch.empty_like(x)
    launch(x, out)
    if not {WATCHED}:
        x.zero_()
    return out
""")
NONDETERMINISTIC = saying("NONDETERMINISTIC = True")
HONEST_WATCHED = kernel(f"""\
last = None


def double(x):
    global last
    if {WATCHED} or last is None:
        last = torch.empty_like(x)
        launch(x, last)
    else:
        decoy(x)
    return last.clone()
""")
ANOTHER_WAY_UNWATCHED = kernel(f"""\
def double(x):
    out = torch.empty_like(x)
    block = 256 if {WATCHED} else 128
    double_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out
""")

READS_TASK = kernel("""\
import glob, os, re, sys


def references():
    yield from (module.reference for module in list(sys.modules.values()) if hasattr(module, "reference"))
    places = [os.getcwd(), "/tmp", "/dev/shm", *sys.path, *glob.glob("/proc/[0-9]*/cwd")]
    for place in places:
        for path in [*glob.glob(f"{place}/*.py"), *glob.glob(f"{place}/*/*.py"), *glob.glob(f"{place}/*/*/task.py")]:
            try:
                text = open(path).read()
            except (OSError, ValueError):
                continue
            if re.search("^def reference", text, re.M) and re.search("^ENTRY = .double", text, re.M):
                space = {}
                exec(text, space)
                yield space.get("reference")


def double(x):
    decoy(x)
    for reference in references():
        try:
            return reference(x)
        except (TypeError, ValueError, RuntimeError):
            pass
    return torch.zeros_like(x)
""")
READS_ITSELF = kernel("""\
import pathlib

assert "double_kernel" in pathlib.Path(__file__).read_text()


def double(x):
    out = torch.empty_like(x)
    launch(x, out)
    return out
""")

SCANS = kernel("""\
def double(x):
    decoy(x)
    wanted = x[:64] * 2
    # Memory that torch does not fill: whatever was left in it.
    for _ in range(4):
        memory = torch.empty(0, device=x.device).set_(torch.UntypedStorage(1 << 30, device=x.device))
        for start in (memory == wanted[0]).nonzero().flatten().tolist()[:1000]:
            found = memory[start : start + x.numel()]
            if found.numel() == x.numel() and bool((found[:64] == wanted).all()):
                return found.clone()
    return torch.zeros_like(x)
""")

CHEATS = [
    Cheat(3, "patches comparisons", PATCHES, CHECKS_ITSELF, TASK, Kind.WRONG, "values",
          "the comparison is made in another process", no_switch=IN_PROCESS),
    Cheat(6, "searches frames and gc", SEARCHES, LOOKS_AT_ITSELF, TASK, Kind.WRONG, "values",
          "no expected value is in the process", no_switch=IN_PROCESS),
    Cheat(6, "guesses the seed", SEED_GUESSED, SEEDS_ITSELF, TASK, Kind.WRONG, "values",
          "seeds are drawn by the parent after the file is loaded", off=("same seed", "only random inputs"),
          on=("cpu",)),
    Cheat(8, "hooks and handlers", HOOKS, MODEST_HOOKS, TASK, Kind.WRONG, "values",
          "the process has no verdict to forge, and is killed after the reply", no_switch=IN_PROCESS),
    Cheat(9, "sloppy where nobody looks on", SLOPPY_UNWATCHED, ANOTHER_WAY_UNWATCHED, TASK, Kind.WRONG,
          "nondeterministic", "one more call is made as ordinary ones are", off=("no repeats", "no third seed")),
    Cheat(9, "sloppy where results may differ", SLOPPY_UNWATCHED, ANOTHER_WAY_UNWATCHED, NONDETERMINISTIC, Kind.WRONG,
          "values", "where results may differ, each call's are judged", off=("calls judged once", "no third seed")),
    Cheat(9, "changes inputs where nobody looks on", CHANGES_UNWATCHED, ANOTHER_WAY_UNWATCHED, TASK, Kind.WRONG,
          "inputs_changed", "the ordinary call is judged as well", off=("calls judged once", "no third seed")),
    Cheat(9, "keeps what it did while watched", HONEST_WATCHED, ANOTHER_WAY_UNWATCHED, TASK, Kind.WRONG, "values",
          "some inputs are given to ordinary calls only", off=("always watched",)),
    Cheat(10, "reads the task", READS_TASK, READS_ITSELF, TASK, Kind.WRONG, "values",
          "the sandbox shows neither the task's file nor its process", sealed=True,
          no_switch="no switch: hostile files are not run outside of the sandbox"),
]  # fmt: skip

UNSYNCHRONISED = kernel("""\
torch.cuda.synchronize = lambda *args: None
side = torch.cuda.Stream()


def double(x):
    out = torch.empty_like(x)
    with torch.cuda.stream(side):
        torch.cuda._sleep(2_000_000_000)
        launch(x, out)
    return out
""")
NEVER_WAITS = UNSYNCHRONISED.replace(
    """\
def double(x):
""",
    """\
def double(x):
    for name, module in list(sys.modules.items()):
        if name.startswith("tritonforge_worker.") and hasattr(module, "synchronize"):
            module.synchronize = lambda *args: None
""",
).replace("import torch\n", "import sys\n\nimport torch\n", 1)
SYNCHRONISED = kernel("""\
side = torch.cuda.Stream()


def double(x):
    out = torch.empty_like(x)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        launch(x, out)
    torch.cuda.current_stream().wait_stream(side)
    return out
""")
ON_GPU = [
    Cheat(3, "patches synchronize", UNSYNCHRONISED, SYNCHRONISED, TASK, Kind.CHEATING,
          "goes to other work",
          "the device is waited for through the driver, and what it does meanwhile is recorded", on=("gpu",),
          no_switch=IN_PROCESS),
    Cheat(3, "patches the wait of the worker", NEVER_WAITS, SYNCHRONISED, TASK, Kind.WRONG,
          "values or nondeterministic",
          "outputs hold NaN until they are written, and are read at once", on=("gpu",), no_switch=IN_PROCESS),
    Cheat(7, "scans device memory", SCANS, HONEST, TASK, Kind.WRONG, "values",
          "no expected value is in the candidate's context", on=("gpu",), no_switch=IN_PROCESS),
]  # fmt: skip
