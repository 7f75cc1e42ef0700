# pyright: basic
# torch and triton ship incomplete types.
"""The worker's outermost loop: say hello, then answer requests until the parent closes the socket."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Generator
from typing import Any

from . import environment, frames, seal
from .failures import Refused, Sources, describe

Reply = tuple[dict[str, Any], list[Any]]


def main(options: dict[str, Any]) -> int:
    """A worker that starts from nothing: imports, then serves one job.

    ``options``: ``socket``, ``flavor``, ``scratch``, ``limits`` and whether it is ``sealed``.
    """
    seal.prctl(seal.SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    sock = socket.socket(fileno=options["socket"])
    # Children of the candidate must not hold the parent's socket open.
    sock.set_inheritable(False)
    seal.be_killed_first()
    seal.limit(options["limits"])
    if options["sealed"]:
        # What has several threads, as after imports, can't change its user namespace.
        seal.drop_privileges(become_nobody=False, processes=options["limits"]["processes"])
    seal.forbid_calls()
    facts = environment.describe(options["flavor"])
    return serve(sock, flavor=options["flavor"], scratch=options["scratch"], facts=facts, base_cache=None)


def serve(sock: socket.socket, *, flavor: str, scratch: str, facts: dict[str, Any], base_cache: str | None) -> int:
    """Get ready, say hello, then answer requests until the parent closes the socket.

    Args:
        sock: the parent's socket.
        flavor: ``cpu``, ``interpret`` or ``gpu``.
        scratch: an empty folder of this worker's own.
        facts: what this interpreter has.
        base_cache: a Triton cache to start from.
    """
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(scratch)
    tempfile.tempdir = scratch
    cache = f"{scratch}/triton-cache"
    os.environ.update(TMPDIR=scratch, TRITON_CACHE_DIR=cache)
    sys.dont_write_bytecode = True
    if facts["problem"] is None:
        from . import warm

        warm.fill_cache(base_cache, cache)
        if flavor == "gpu":
            facts = {**facts, **environment.describe_gpu()}
            if facts["problem"] is None:
                # CUPTI in a process shuts out the profiler that may have started it.
                warm.touch_gpu() if base_cache is None else warm.use_everything()
    frames.send(sock, {"hello": facts})
    if facts["problem"] is not None:
        return 0
    worker = Worker()
    while (frame := frames.receive(sock)) is not None:
        try:
            fields, blobs = worker.handle(frame)
            reply = {"ok": True, **fields}
        except BaseException as error:  # noqa: BLE001 - the one place where anything may arrive
            reply, blobs = (
                {"ok": False, "failure": describe(worker.meant(error), worker.stage, worker.sources)},
                [],
            )
        for stream in (sys.stdout, sys.stderr):
            # The candidate may have closed or removed them.
            with contextlib.suppress(AttributeError, ValueError, OSError):
                stream.flush()
        for blob in frame.blobs:
            if isinstance(blob, tuple):
                os.close(blob.descriptor)
        frames.send(sock, reply, blobs)
        worker.sent()
    return 0


class Worker:
    """The state of one evaluation: a task or a kernel, its inputs, and what was recorded."""

    def __init__(self) -> None:
        self._role = ""
        self._target: dict[str, Any] | None = None
        self._device = "cpu"
        self.sources = Sources()
        self.stage = "worker"
        self._task: Any = None
        self._entry: Any = None
        self._in_place: list[str] = []
        self._inputs: Any = None
        self._recorder: Any = None
        self._measurement: Any = None

    def handle(self, frame: frames.Frame) -> Reply:
        """Carry out one request."""
        request = dict(frame.fields)
        operation = getattr(self, f"_do_{request.pop('op')}")
        return operation(frame.blobs, **request)

    def meant(self, error: BaseException) -> BaseException:
        """The error that a reader wants, out of the interpreter's wrapping."""
        if self._role == "interpret":
            from . import interpreter

            return interpreter.refusal_in(error) or error
        return error

    def sent(self) -> None:
        """The reply has left: borrowed tensors may go."""
        if "torch" in sys.modules:
            from . import values

            values.release()

    def _do_begin(self, _: list[Any], *, role: str, device: str, target: dict[str, Any] | None) -> Reply:
        """What this worker is for: ``task``, ``capture``, ``interpret`` or ``cuda``."""
        self._role, self._device, self._target = role, device, target
        return {}, []

    def _do_probe_device(self, _: list[Any]) -> Reply:
        """Whether the device still computes: the known kernel on it."""
        from . import warm

        warm.touch_gpu()
        return {}, []

    # The trusted side: tasks.

    def _do_load_task(self, blobs: list[Any], *, shown_as: str, origin: str | None) -> Reply:
        from . import load
        from .task import Task

        self.stage = "task"
        module = load.load_module(
            blobs[0].decode(),
            name="task",
            shown_as=shown_as,
            stage="task",
            origin=origin,
            sources=self.sources,
        )
        self._task = Task(module, self._device)
        return {"task": self._task.description}, []

    def _do_make_inputs(self, _: list[Any], *, case: str, seed: int) -> Reply:
        from . import values

        self.stage = "inputs"
        blobs: list[Any] = []
        inputs = self._task.make_inputs(case, seed)
        return {"tree": values.encode(inputs, blobs, stage="inputs", where="make_inputs' result")}, blobs

    def _do_work(self, _: list[Any], *, case: str) -> Reply:
        self.stage = "task"
        return {"work": self._task.work(case)}, []

    def _do_expect(self, _: list[Any]) -> Reply:
        self.stage = "reference"
        self._task.expect()
        return {}, []

    def _do_expect_from(self, blobs: list[Any], *, tree: dict[str, Any]) -> Reply:
        from . import values

        self._task.expect_from(values.decode(tree, blobs, self._device))
        return {}, []

    def _do_judge(self, blobs: list[Any], *, tree: dict[str, Any]) -> Reply:
        from . import values

        self.stage = "compare"
        strays = values.strays(tree, self._device.partition(":")[0])
        if strays:
            message = f"output: {strays} of its tensors lie on the wrong device; expected {self._device}"
            return {"outputs": [{"where": "output", "mismatch": message}]}, []
        return {"outputs": self._task.judge(values.decode(tree, blobs, self._device))}, []

    # The untrusted side: kernels.

    def _do_load_kernel(
        self, blobs: list[Any], *, shown_as: str, origin: str | None, entry: str, in_place: list[str]
    ) -> Reply:
        from . import load

        self.stage = "load"
        if self._role == "capture":
            from . import capture

            assert self._target is not None
            self._recorder = capture.install(self._target)
        elif self._role == "interpret":
            from . import interpreter

            interpreter.install()
        with self._cuda():
            module = load.load_module(
                blobs[0].decode(),
                name="kernel",
                shown_as=shown_as,
                stage="load",
                origin=origin,
                sources=self.sources,
            )
        self._entry = load.find_entry(module, entry, shown_as)
        self._in_place = in_place
        return {}, []

    def _do_set_inputs(self, blobs: list[Any], *, tree: dict[str, Any]) -> Reply:
        from . import values

        self.stage = "inputs"
        self._inputs = values.decode(tree, blobs, self._device)
        return {}, []

    def _do_capture(self, _: list[Any]) -> Reply:
        """Run the entry once; the launches that it made, compiled."""
        from . import capture
        from .task import call

        self.stage = "capture"
        self._recorder.launches.clear()
        with self._cuda():
            call(self._entry, self._inputs)
        blobs: list[Any] = []
        return {"launches": capture.report(self._recorder, blobs)}, blobs

    def _do_call(self, _: list[Any]) -> Reply:
        """Run the entry once on copies of the inputs; its outputs."""
        import torch

        from . import values
        from .task import call, pick

        self.stage = "run"
        inputs = values.copy(self._inputs)
        before = self._launches()
        with self._cuda(), torch.no_grad():
            returned = call(self._entry, inputs)
            if self._device != "cpu":
                torch.cuda.synchronize()
        outputs = pick(returned, inputs, self._in_place, self._entry)
        blobs: list[Any] = []
        tree = values.encode(outputs, blobs, stage="run", where="the entry's result")
        if before is not None and self._launches() == before:
            message = "the entry launched no Triton kernel: it must launch at least one, kernel[grid](...)"
            raise Refused("rejected", "run", message)
        return {"tree": tree}, blobs

    def _launches(self) -> int | None:
        """Kernels launched so far, where that is counted."""
        if self._role != "interpret":
            return None
        from . import interpreter

        return interpreter.launches

    def _do_prepare(self, _: list[Any], *, flush_bytes: int) -> Reply:
        from .measure import Measurement

        self.stage = "run"
        self._measurement = Measurement(self._entry, self._inputs, self._in_place, flush_bytes)
        return {}, []

    def _do_first_call(self, _: list[Any]) -> Reply:
        self.stage = "run"
        return self._measurement.first_call(), []

    def _do_warm_up(self, _: list[Any], *, seconds: float, calls_limit: int) -> Reply:
        self.stage = "run"
        return self._measurement.warm_up(seconds, calls_limit), []

    def _do_block(self, _: list[Any], *, calls: int, number: int) -> Reply:
        self.stage = "run"
        return self._measurement.block(calls, number), []

    def _do_call_times(self, _: list[Any], *, calls: int) -> Reply:
        self.stage = "run"
        return {"call_us": self._measurement.call_times(calls)}, []

    def _do_profile(self, _: list[Any]) -> Reply:
        from .measure import profile_region

        self.stage = "run"
        profile_region(self._entry, self._inputs)
        return {}, []

    @contextlib.contextmanager
    def _cuda(self) -> Generator[None]:
        """Where nothing runs on a GPU, host code written for CUDA is served from the CPU."""
        if self._role not in {"capture", "interpret"}:
            yield
            return
        from .remap import cuda_on_cpu

        target = self._target
        assert target is not None
        with cuda_on_cpu(target["capability"], target["sm_count"], target["name"]):
            yield
