# pyright: basic
# torch and triton ship incomplete types.
"""The preloader: imports torch and triton once, never touches CUDA, and forks spares that wait for one job each.

It hears requests on a private socket, one message each: ``{"flavor": ..., "device": ..., "limits": ...}`` with four
descriptors: the spare's socket, its standard output and error, and a status socket on which the spare's own first
process tells that it was born and how it ended.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from . import environment, seal, serve

MESSAGE_LIMIT = 1 << 20
DESCRIPTORS = 4


def main(options: dict[str, Any]) -> int:
    """Serve one parent until it closes the control socket."""
    seal.prctl(seal.SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    seal.prctl(seal.SET_SUBREAPER, 1)
    control = socket.socket(fileno=options["control"])
    control.set_inheritable(False)
    facts = environment.describe(options["flavor"])
    if facts["problem"] is None:
        warm_up(options)
    # What is here now is shared with every spare; collecting it would only copy its pages.
    gc.collect()
    gc.freeze()
    control.send(json.dumps({"environment": facts, "threads": len(os.listdir("/proc/self/task"))}).encode())
    if facts["problem"] is not None:
        return 0
    if options["sealed"]:
        # Unsealed spares write their own maps; sealed ones turn this on again for themselves.
        seal.prctl(seal.SET_DUMPABLE, 0)
    Preloader(options, control, facts).serve()
    return 0


def warm_up(options: dict[str, Any]) -> None:
    """Import what jobs use, and compile once, so that no spare pays for first times."""
    # Temporary files of the compiler, in a folder that no spare writes to.
    folder = options["folder"]
    os.makedirs(folder, exist_ok=True)
    tempfile.tempdir = folder
    os.environ["TMPDIR"] = folder
    from . import (
        capture,  # noqa: F401
        counted,  # noqa: F401
        cupti,
        failures,
        kernel_side,  # noqa: F401
        load,  # noqa: F401
        measure,  # noqa: F401
        range_profiler,
        remap,  # noqa: F401
        share,  # noqa: F401
        standalone,  # noqa: F401
        task_side,  # noqa: F401
        values,  # noqa: F401
    )

    if options["flavor"] == "interpret":
        from . import interpreter  # noqa: F401

        return
    compile_first(f"{folder}/base-cache", driver=options["driver"])
    if options["driver"]:
        # Some 30 MB, which no spare has to read then; without CUPTI what needs it tells so itself.
        with contextlib.suppress(failures.Refused):
            range_profiler.load_beside(cupti.library())


def compile_first(cache: str, *, driver: bool) -> None:
    """Compile the known kernel where this machine can.

    What it may lack is passed over: a spare that needs it fails in its own job, and tells why. Any other exception ends
    the preloader, and its parent shows the traceback.
    """
    from triton.errors import TritonError

    from . import warm

    lacking = (
        TritonError,  # The compiler or ptxas refuses the kernel.
        RuntimeError,  # No ptxas or no C compiler is found, or a pass of the compiler fails.
        subprocess.SubprocessError,  # The C compiler or ptxas fails.
        OSError,  # Files can't be written, or a program can't be started.
        ImportError,  # What was built can't be loaded.
        AssertionError,  # Triton's way to say that it finds no libcuda.
    )
    with contextlib.suppress(*lacking):
        warm.compile_once(cache, driver=driver)


class Preloader:
    """Forks on request and reaps what ends."""

    def __init__(self, options: dict[str, Any], control: socket.socket, facts: dict[str, Any]) -> None:
        self._options = options
        self._control = control
        self._facts = facts
        self._spares: set[int] = set()

    def serve(self) -> None:
        """Until the parent closes the control socket."""
        wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self._control, wake], [], [])
            if wake in ready:
                os.read(wake, 4096)
                self._reap()
            if self._control in ready:
                message, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_LIMIT, DESCRIPTORS)
                if not message:
                    return
                self._fork(json.loads(message), descriptors)

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self._spares.discard(pid)
        if not self._options["sealed"]:
            self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Without a PID namespace, what a dead spare's candidate left behind becomes a child of this process."""
        try:
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        except FileNotFoundError:
            # A kernel without CONFIG_PROC_CHILDREN: then they live until the parent looks for them.
            return
        for pid in {int(child) for child in children} - self._spares:
            os.kill(pid, signal.SIGKILL)

    def _fork(self, request: dict[str, Any], descriptors: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            os.write(descriptors[3], json.dumps({"failed": f"fork: {error.strerror}"}).encode())
        if pid > 0:
            self._spares.add(pid)
        if pid != 0:
            for descriptor in descriptors:
                os.close(descriptor)
            return
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        status = socket.socket(fileno=descriptors[3])
        try:
            self._become_spare(request, descriptors, status)
        except OSError as error:
            status.send(json.dumps({"failed": str(error)}).encode())
            os.write(descriptors[2], f"{error}\n".encode())
        finally:
            os._exit(1)

    def _become_spare(self, request: dict[str, Any], descriptors: list[int], status: socket.socket) -> None:
        self._control.close()
        sealed, user = self._options["sealed"], self._options["user_namespace"]
        if sealed:
            seal.enter_namespaces(user=user)
            if os.fork() != 0:
                # The first process of the namespace goes to the preloader, which reaps orphans.
                os._exit(0)
        os.setsid()
        seal.be_killed_first()
        descriptor = os.pidfd_open(os.getpid())
        socket.send_fds(status, [b'{"born": true}'], [descriptor])
        os.close(descriptor)
        if sealed:
            seal.mount_own_folders(
                scratch_bytes=request["limits"]["scratch_bytes"],
                private=self._options["folder"],
                reopened=self._options["reopened"],
                hidden_devices=request["hidden_devices"],
            )
        else:
            seal.prctl(seal.SET_SUBREAPER, 1)
            seal.prctl(seal.SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        worker = os.fork()
        if worker != 0:
            _attend(worker, status)
        status.close()
        try:
            self._run(request, descriptors)
        except BaseException:  # noqa: BLE001 - the outermost loop of a process: the parent shows what is printed here
            traceback.print_exc()

    def _run(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """The worker itself: sealed, then served until its one job is done."""
        os.setsid()
        seal.prctl(seal.SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        sock, out, err, _ = descriptors
        empty = os.open(os.devnull, os.O_RDONLY)
        for descriptor, standard in ((empty, 0), (out, 1), (err, 2)):
            os.dup2(descriptor, standard)
        own = os.dup2(sock, 3, inheritable=False)
        _close_all_but(0, 1, 2, own)
        os.environ.update(request["environment"])
        scratch = request["scratch"]
        os.makedirs(scratch, exist_ok=True)
        seal.limit(request["limits"])
        if self._options["sealed"]:
            if self._options["become_nobody"]:
                os.chown(scratch, seal.NOBODY, seal.NOBODY)
            processes = request["limits"]["processes"]
            seal.drop_privileges(become_nobody=self._options["become_nobody"], processes=processes)
        seal.forbid_calls()
        code = serve.serve(
            socket.socket(fileno=own),
            flavor=request["flavor"],
            scratch=scratch,
            facts=self._facts,
            base_cache=f"{self._options['folder']}/base-cache",
        )
        with contextlib.suppress(AttributeError, ValueError, OSError):
            sys.stdout.flush()
        os._exit(code)


def _close_all_but(*kept: int) -> None:
    # As many as there may be can be a thousand million; those that there are, are few.
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _attend(worker: int, status: socket.socket) -> None:
    """The first process of the spare: reap everything, tell how the worker ended, and end the rest with itself."""
    # Nothing in the spare can look into this process or stop it; only the parent can end it.
    _close_all_but(status.fileno())
    seal.prctl(seal.SET_DUMPABLE, 0)
    # Of a namespace's first process, signals that it doesn't handle are not taken from within; Python handles this one.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    while True:
        pid, ended = os.waitpid(-1, 0)
        if pid == worker:
            break
    code = os.waitstatus_to_exitcode(ended)
    status.send(json.dumps({"ended": code}).encode())
    os._exit(0)
