# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""How many entries of TritonBench-G can be recorded and replayed, and why the others can't; needs no GPU.

    python tests/benchmarks/replayable.py --corpus TritonBench/data/TritonBench_G_v1

Each file (https://github.com/thunlp/TritonBench) runs in a process of its own under the capturing driver, its tensors
on the CPU: the part above the line of ``#`` is the kernel file, the part below its test. The entry of a call is the
outermost function of the kernel file around a launch. It is recorded twice, the second time with other contents; it
qualifies if all of its first calls do. Of an autotuner's configurations only the first is compiled.

The files run with the rights of whoever starts this.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import inspect
import json
import multiprocessing
import os
import re
import resource
import sys
import tempfile
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

SEPARATOR = re.compile(r"^#{40,}\s*$", re.MULTILINE)
CALLS_LIMIT = 3
"""Calls of one entry that are recorded."""
MEMORY_BYTES = 12 << 30
TARGET = {
    "name": "h100-sxm", "capability": 90, "sm_count": 132, "shared_bytes_per_block": 232_448,
    "registers_per_sm": 65_536,
}  # fmt: skip
QUALIFIES = "qualifies"
DEPENDS = "its launches depend on the contents of its inputs"
GROUPS = (
    (re.compile(r"aten\.\S+ copies outside of Triton"), "copies with torch (contiguous, to, clone, copy_)"),
    (re.compile(r"\S+ computes outside of Triton"), "computes with torch"),
    (re.compile(r"\S+ reads an element on the host"), "reads values on the host"),
    (re.compile(r"memory that was not allocated in this call"), "uses memory from before the call"),
    (re.compile(r"depend on the contents"), DEPENDS),
    (re.compile(r"allowed are|^the result\S* is a"), "takes or returns something other than data"),
)
FAILED = "does not run without a GPU, or not with this Triton"


SORTS = ("OUTCOME", "ENDED")
"""Lines that a file's process prints."""


class Outcome(NamedTuple):
    """What became of one entry's call."""

    entry: str
    reason: str


def main() -> None:
    """Run all files, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="the folder TritonBench_G_v1")
    parser.add_argument("--seconds", type=int, default=60, help="time limit of one file")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--details", type=Path, help="where to write each entry's outcome as JSON")
    options = parser.parse_args()
    files = sorted(options.corpus.glob("*.py"))
    started = time.monotonic()
    # Torch and Triton are imported once; each file's process starts from there.
    worker = Worker()
    found = run_all(worker, files, options.processes, options.seconds)
    entries = {file.name: verdicts(outcomes) for file, (outcomes, _) in found.items()}
    errors = {file.name: error for file, (outcomes, error) in found.items() if not outcomes}
    if options.details is not None:
        options.details.write_text(json.dumps({"entries": entries, "errors": errors}, indent=1))
    sys.stdout.write(report(entries, errors, time.monotonic() - started))


def verdicts(outcomes: list[Outcome]) -> dict[str, str]:
    """Each entry's: the first reason among its calls, if there is one."""
    every: dict[str, list[str]] = defaultdict(list)
    for outcome in outcomes:
        every[outcome.entry].append(outcome.reason)
    return {entry: next((r for r in reasons if r != QUALIFIES), QUALIFIES) for entry, reasons in every.items()}


def run_all(worker: Worker, files: list[Path], processes: int, seconds: int) -> dict[Path, tuple[list[Outcome], str]]:
    """Each file's outcomes, and how it ended otherwise; so many at a time."""
    found: dict[Path, tuple[list[Outcome], str]] = {}
    waiting, running = files[::-1], list[Child]()
    while waiting or running:
        while waiting and len(running) < processes:
            running.append(Child(worker, waiting.pop(), seconds))
        wait([child.process.sentinel for child in running], timeout=1)
        for child in [child for child in running if child.ended()]:
            running.remove(child)
            found[child.file] = child.outcomes()
            sys.stderr.write(f"{len(found)} of {len(files)}: {child.file.name}\n")
    return found


class Child:
    """A process that runs one file."""

    def __init__(self, worker: Worker, file: Path, seconds: int) -> None:
        self.file, self._seconds = file, seconds
        self._stop = time.monotonic() + seconds
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - the process writes to it as long as it lives
        self.process = multiprocessing.get_context("fork").Process(target=self._run, args=(worker,))
        self.process.start()

    def _run(self, worker: Worker) -> None:
        os.dup2(self._output.fileno(), 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            run_file(worker, self.file)
        except BaseException as error:
            message = (str(error).strip().splitlines() or [""])[0]
            sys.stdout.write(f"\nENDED {json.dumps(f'{type(error).__name__}: {message}'[:160])}\n")
            raise
        finally:
            sys.stdout.flush()

    def ended(self) -> bool:
        """Whether it has, or had to."""
        if self.process.is_alive() and time.monotonic() > self._stop:
            self.process.kill()
        return not self.process.is_alive()

    def outcomes(self) -> tuple[list[Outcome], str]:
        """Of its calls, and how it ended otherwise."""
        self._output.seek(0)
        lines = self._output.read().splitlines()
        told = {
            sort: [line.removeprefix(f"{sort} ") for line in lines if line.startswith(f"{sort} ")] for sort in SORTS
        }
        late = f"takes more than {self._seconds} s" if time.monotonic() > self._stop else "launches nothing"
        error = json.loads(told["ENDED"][-1]) if told["ENDED"] else late
        return [Outcome(*json.loads(line)) for line in told["OUTCOME"]], error


def report(entries: dict[str, dict[str, str]], errors: dict[str, str], seconds: float) -> str:
    """The counts in Markdown."""
    reasons = [reason for found in entries.values() for reason in found.values()]
    all_qualify = sum(bool(found) and set(found.values()) == {QUALIFIES} for found in entries.values())
    ran = len(entries) - len(errors)
    lines = [
        f"{len(entries)} files, of which {ran} ran ({seconds:.0f} s); {len(reasons)} entries, "
        f"{reasons.count(QUALIFIES)} qualify; in {all_qualify} files all do.",
        "",
        "| entries | outcome |",
        "| ---: | --- |",
    ]
    groups = Counter(group_of(reason) for reason in reasons)
    lines += [f"| {count} | {group} |" for group, count in groups.most_common()]
    lines += ["", "| entries | reason |", "| ---: | --- |"]
    details = Counter(plain(reason) for reason in reasons if reason != QUALIFIES)
    lines += [f"| {count} | {reason} |" for reason, count in details.most_common()]
    lines += ["", "| files without an entry | why |", "| ---: | --- |"]
    lines += [f"| {count} | {error} |" for error, count in Counter(errors.values()).most_common()]
    return "\n".join(lines) + "\n"


def group_of(reason: str) -> str:
    """A reason's sort."""
    if reason == QUALIFIES:
        return QUALIFIES
    return next((group for pattern, group in GROUPS if pattern.search(reason)), FAILED)


def plain(reason: str) -> str:
    """A reason without names of kernels and places."""
    reason = reason.partition("; allowed are")[0]
    return re.sub(r"^\w+ is given", "a kernel is given", re.sub(r"^the result(\[.*?\])+", "the result", reason))


def run_file(worker: Worker, path: Path) -> None:
    """Run one file and print an outcome for each recorded call."""
    importlib.import_module("torch").set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    text = path.read_text()
    separator = SEPARATOR.search(text)
    assert separator is not None, "no line of # between kernels and test"
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    with worker.cuda_on_cpu():
        exec(compile(text[: separator.start()], path, "exec"), module.__dict__)
        worker.watch(module)
        # The same line numbers as in the file.
        test = "\n" * text[: separator.end()].count("\n") + text[separator.end() :]
        exec(compile(test, path, "exec"), module.__dict__)


class Worker:
    """Records the outermost calls of a module's functions that launch something."""

    def __init__(self) -> None:
        folder = Path(__file__).resolve().parents[2] / "sandbox" / "worker"
        spec = importlib.util.spec_from_file_location("worker_main", folder / "__main__.py")
        assert spec is not None
        assert spec.loader is not None
        main = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(main)
        main._load_package()
        sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
        self._capture, self._recording, self._remap, self._values = (
            importlib.import_module(f"tritonforge_worker.{name}")
            for name in ("capture", "recording", "remap", "values")
        )
        self._recorder = self._capture.install(TARGET)
        self._plans = importlib.import_module("tritonforge.sandbox.replay_plan")
        self._inside = False
        self._calls: Counter[str] = Counter()
        _take_first_configurations()

    def cuda_on_cpu(self) -> Any:
        return self._remap.cuda_on_cpu(TARGET["capability"], TARGET["sm_count"], TARGET["name"])

    def watch(self, module: types.ModuleType) -> None:
        """Look at every call of the module's functions, of its modules and of its autograd functions."""
        torch = importlib.import_module("torch")
        value: Any
        for name, value in list(vars(module).items()):
            own = getattr(value, "__module__", None) == module.__name__
            bases = value.__mro__ if own and isinstance(value, type) else ()
            if torch.nn.Module in bases:
                value.forward = self._watched(f"{name}.forward", value.forward)
            elif torch.autograd.Function in bases:
                value.apply = staticmethod(self._watched(f"{name}.apply", value.apply))
            elif (inspect.isfunction(value) and own) or isinstance(value, types.MethodType):
                setattr(module, name, self._watched(name, value))

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside or self._calls[name] >= CALLS_LIMIT:
                return function(*args, **kwargs)
            self._inside = True
            try:
                self._look(name, function, args, kwargs)
                return function(*args, **kwargs)
            finally:
                self._inside = False

        return call

    def _look(self, name: str, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> None:
        count, names = len(args), list(kwargs)
        # A module is no argument of a task's.
        owner = args[:1] if count and isinstance(args[0], importlib.import_module("torch").nn.Module) else ()
        inputs = (*args[len(owner) :], *kwargs.values())

        def entry(*flat: Any) -> Any:
            split = count - len(owner)
            return function(*owner, *flat[:split], **dict(zip(names, flat[split:], strict=True)))

        self._recorder.launches.clear()
        try:
            first, second = (self._recorded(entry, inputs, other) for other in (False, True))
            reason = self._plans.settled(first, second).reason or QUALIFIES
        except Exception as error:  # noqa: BLE001 - whatever the file raises is its outcome
            message = (str(error).strip().splitlines() or [""])[0]
            reason = message if "Refused" in type(error).__name__ else f"{type(error).__name__}: {message}"
        if self._recorder.launches:
            self._calls[name] += 1
            sys.stdout.write(f"\nOUTCOME {json.dumps(Outcome(name, reason[:200]))}\n")
            sys.stdout.flush()

    def _recorded(self, entry: Callable[..., Any], inputs: tuple[Any, ...], other: bool) -> Any:
        own = self._values.copy(inputs)
        for tensor in self._values.tensors(own) if other else []:
            if tensor.is_floating_point():
                tensor.detach().mul_(0.75)
        fields, blobs = self._recording.record(entry, own, [], "cpu")
        return self._plans.Recorded(**fields, blobs=blobs)


def _take_first_configurations() -> None:
    """Without a GPU, none is faster than another."""
    tuners: Any = importlib.import_module("triton.runtime.autotuner").Autotuner
    original = tuners.run

    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        tuner.configs = tuner.configs[:1]
        return original(tuner, *args, **kwargs)

    tuners.run = run


if __name__ == "__main__":
    main()
