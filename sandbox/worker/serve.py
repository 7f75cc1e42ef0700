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
from typing import Any

from . import environment, frames, seal
from .failures import Refused, Sources, describe

Reply = tuple[dict[str, Any], list[Any]]
"""Fields and blobs."""


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
    flavor = options["flavor"]
    facts = {"problem": None} if flavor == "reader" else environment.describe(flavor)
    code = serve(sock, flavor=flavor, scratch=options["scratch"], facts=facts, base_cache=None)
    if flavor == "profiled":
        # What Python and CUDA would do at their end takes half a second, which the profiler's report waits for.
        os._exit(code)
    return code


def serve(sock: socket.socket, *, flavor: str, scratch: str, facts: dict[str, Any], base_cache: str | None) -> int:
    """Get ready, say hello, then answer requests until the parent closes the socket.

    Args:
        sock: the parent's socket.
        flavor: ``cpu``, ``interpret``, ``gpu``, ``profiled`` (for a GPU that it touches only when it is told to), or
            ``reader`` (of reports: torch and Triton stay out of it).
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
    if facts["problem"] is None and flavor != "reader":
        from . import versions, warm

        versions.keep_lines()
        warm.fill_cache(base_cache, cache)
        if flavor == "gpu":
            facts = {**facts, **environment.describe_gpu()}
            if facts["problem"] is None:
                # CUPTI in a process shuts out the profiler that may have started it.
                warm.touch_gpu() if base_cache is None else warm.use_everything()
        elif flavor == "profiled":
            warm.load_sides()
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
        try:
            frames.send(sock, reply, blobs)
        except frames.TooLong as error:
            refused = Refused("unsupported", worker.stage, str(error))
            frames.send(sock, {"ok": False, "failure": describe(refused, worker.stage, worker.sources)})
        worker.sent()
    return 0


class Worker:
    """The state of one evaluation: the side of the task or that of a kernel."""

    def __init__(self) -> None:
        self._role = ""
        self._side: Any = None
        self.sources = Sources()

    @property
    def stage(self) -> str:
        """What is being done, for failures."""
        return "worker" if self._side is None else self._side.stage

    def handle(self, frame: frames.Frame) -> Reply:
        """Carry out one request."""
        request = dict(frame.fields)
        name = f"do_{request.pop('op')}"
        return getattr(self if hasattr(self, name) else self._side, name)(frame.blobs, **request)

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

    def do_begin(self, _: list[Any], *, role: str, device: str, target: dict[str, Any] | None) -> Reply:
        """What this worker is for: ``task``, ``capture``, ``interpret``, ``cuda`` or ``replay``."""
        self._role = role
        if role == "report":
            from .report_side import ReportSide

            self._side = ReportSide()
        elif role == "task":
            from .task_side import TaskSide

            self._side = TaskSide(device, self.sources)
        elif role == "replay":
            from .replay_side import ReplaySide

            self._side = ReplaySide(device, self.sources)
        else:
            from .kernel_side import KernelSide

            self._side = KernelSide(role, device, target, self.sources)
        return {}, []

    def do_probe_device(self, _: list[Any]) -> Reply:
        """Whether the device still computes: the known kernel on it."""
        from . import warm

        warm.touch_gpu()
        return {}, []

    def do_warm_up(self, _: list[Any]) -> Reply:
        """Open the device and run the known kernel, so that no job pays for first times."""
        return self.do_probe_device(_)

    def do_probe_profile(self, _: list[Any]) -> Reply:
        """Run the known kernel inside the range that a profiler selects."""
        from . import warm
        from .ranges import big_op

        warm.touch_gpu()
        with big_op():
            warm.touch_gpu()
        return {}, []
