# pyright: basic
# torch ships incomplete types.
"""Requests that the untrusted worker answers: it runs the kernel file and gives back bytes and facts, no verdicts.

What needs torch is imported where it is needed: a file that fails to load is told at once.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from . import load
from .failures import Sources
from .timed_side import TimedSide

if TYPE_CHECKING:
    from .guard import Guards

Reply = tuple[dict[str, Any], list[Any]]
ACTIVITIES_LIMIT = 64
"""Kernels, copies and fills that are told by name."""


class KernelSide(TimedSide):
    """A kernel file, the inputs that it was given, and what was recorded."""

    def __init__(self, role: str, device: str, target: dict[str, Any] | None, sources: Sources) -> None:
        self._role, self._device, self._target = role, device, target
        self._sources = sources
        self.stage = "worker"
        self._entry: Any = None
        self._in_place: list[str] = []
        self._inputs: Any = None
        self._offset, self._reuse = 0, False
        self._guards: Guards | None = None
        self._key = ""
        self._before: Any = None
        """Outputs of the call before: while they live, the next call's can't lie in the same place."""
        self._recorder: Any = None

    def do_load_kernel(
        self, blobs: list[Any], *, shown_as: str, origin: str | None, entry: str, in_place: list[str]
    ) -> Reply:
        self.stage = "load"
        if self._role == "capture":
            self._capture()
        elif self._role == "interpret":
            from . import interpreter

            interpreter.install()
        if self._role != "capture" and "torch" in sys.modules:
            # What watches it is there before the file's first line runs.
            from . import guard, launches, reference, tuning, values  # noqa: F401

            launches.watch()
            tuning.watch()
        with self._cuda():
            module = load.load_module(
                blobs[0].decode(), name="kernel", shown_as=shown_as, stage="load", origin=origin, sources=self._sources
            )
        self._entry = load.find_entry(module, entry, shown_as)
        self._in_place = in_place
        return {}, []

    def do_set_inputs(self, blobs: list[Any], *, tree: dict[str, Any], offset: int, reuse: bool) -> Reply:
        from . import values

        self.stage = "inputs"
        self._inputs = values.decode(tree, blobs, self._device)
        self._offset, self._reuse = offset, reuse
        return {}, []

    def do_capture(self, _: list[Any]) -> Reply:
        """Run the entry once; the launches that it made, compiled."""
        from . import capture, reference

        self.stage = "capture"
        self._recorder.launches.clear()
        with self._cuda():
            reference.call(self._entry, self._inputs)
        blobs: list[Any] = []
        return capture.report(self._recorder, blobs), blobs

    def do_run_file(self, blobs: list[Any], *, shown_as: str, origin: str | None, limit_s: float) -> Reply:
        """Run a kernel file as it stands, for so many seconds at most.

        `do_captured` tells its launches, also after this has failed.
        """
        from . import placeholders, standalone

        self.stage = "capture"
        recorder = self._capture()
        with self._cuda(), placeholders.used():
            standalone.run(
                blobs[0].decode(),
                shown_as=shown_as,
                origin=origin,
                sources=self._sources,
                launched=lambda: bool(recorder.launches),
                limit_s=limit_s,
            )
        return {}, []

    def do_captured(self, _: list[Any]) -> Reply:
        """The launches made so far, compiled."""
        from . import capture

        blobs: list[Any] = []
        return capture.report(self._recorder, blobs), blobs

    def do_explain(self, _: list[Any], *, codes: list[str]) -> Reply:
        """What the compiler said of kernels that were captured, and their machine code as text."""
        from . import explain

        self.stage = "capture"
        blobs: list[Any] = []
        return {"explained": explain.report(self._recorder.kernels.values(), codes, blobs)}, blobs

    def _capture(self) -> Any:
        from . import capture

        assert self._target is not None
        self._recorder = capture.install(self._target)
        return self._recorder

    def do_call(self, blobs: list[Any], *, key: str | None, upstream: dict[str, Any] | None) -> Reply:
        """Run the entry once on copies of the inputs; what it returned, and what happened beside."""
        import torch

        from . import guard, launches, reference, values

        self.stage = "run"
        gradients = None if upstream is None else values.decode(upstream, blobs, self._device)
        guards = self._guards_for(key)
        launches.watch()
        launches.reset()
        if guards is None:
            inputs = values.copy(self._inputs)
            with self._recording() as activities:
                outputs = self._outputs(inputs, gradients)
        else:
            names = reference.parameter_names(self._entry)
            inputs = guards.place(self._inputs, self._offset, reuse=self._reuse, names=names)
            activities = None
            with guards.watching():
                outputs = self._outputs(inputs, gradients)
        given: list[Any] = []
        # First, and by itself: what is refused as a result has a place in it, and may have no address.
        encoded = values.encode(outputs, given, stage="run", where="the entry's result")
        fields = {
            "labels": [] if guards is None else guards.labels(),
            "operations": {} if guards is None else guards.operations,
            "outputs_at": [guard.extent(tensor) for tensor in values.tensors(outputs)],
            "inputs_at": [guard.extent(tensor) for tensor in values.tensors(inputs)],
            "launched": launches.launched(),
            "touched": [launches.touched(tensor.data_ptr()) for tensor in values.tensors(outputs)],
            "activities": activities,
            "own_symbols": launches.own_symbols(),
            "on_gpu": self._device != "cpu",
        }
        margins = torch.empty((0, 2, guard.MARGIN), dtype=torch.uint8) if guards is None else guards.margins()
        rest = values.encode({"inputs": inputs, "margins": margins}, given, stage="run", where="the inputs")
        self._before = outputs
        return {**fields, "tree": {"dict": [["outputs", encoded], *rest["dict"]]}}, given

    def _outputs(self, inputs: Any, upstream: Any) -> Any:
        from . import cuda_context, reference

        with self._cuda():
            if upstream is None:
                found = reference.run(self._entry, inputs, self._in_place)
            else:
                found = reference.gradients(self._entry, inputs, self._in_place, upstream)
            if self._device != "cpu":
                cuda_context.synchronize()
        return found

    def _guards_for(self, key: str | None) -> Guards | None:
        if key is None:
            return None
        from .guard import Guards

        if self._guards is None or key != self._key:
            self._key, self._guards = key, Guards(self._device, bytes.fromhex(key), self._sources)
        return self._guards

    @contextlib.contextmanager
    def _recording(self) -> Generator[list[dict[str, Any]] | None]:
        """Within this context, what the device does is recorded, where there is one; the list is full afterwards."""
        if self._device == "cpu":
            yield None
            return
        from . import cuda_context, cupti

        recording = cupti.recorder()
        cuda_context.synchronize()
        recording.start()
        recording.read()
        found: list[dict[str, Any]] = []
        try:
            yield found
        finally:
            recording.stop()
        totals: dict[str, dict[str, Any]] = {}
        for activity in recording.read():
            name = activity.name[:200]
            if name not in totals and len(totals) >= ACTIVITIES_LIMIT - 1:
                name = "others"
            total = totals.setdefault(name, {"name": name, "us": 0.0, "count": 0})
            total["us"] += (activity.stop_ns - activity.start_ns) / 1e3
            total["count"] += 1
        found += totals.values()

    def do_run_once(self, _: list[Any]) -> Reply:
        """One call of the entry and nothing beside, for a tool that watches the process."""
        from . import values

        self.stage = "run"
        self._outputs(values.copy(self._inputs), None)
        return {}, []

    def do_record(self, _: list[Any], *, seed: int) -> Reply:
        """What one call of the entry puts on the device, for a replayer; or why it can't be replayed.

        ``seed`` is that of the inputs' contents.
        """
        from . import launches, recording
        from .contents import NONE, Contents

        self.stage = "run"
        launches.unwatch()
        with self._cuda():
            # Another alternative for each seed, too.
            inputs = Contents(self._inputs, seed, self._alternatives or NONE).make(seed)
            return recording.record(self._entry, inputs, self._in_place, self._device)

    def do_tuned(self, _: list[Any]) -> Reply:
        """What Triton's autotuner chose."""
        from . import tuning

        self.stage = "run"
        return {"tuned": tuning.report()}, []

    def _before_timing(self, *, last: bool) -> None:
        from . import launches, tuning

        self._guards = self._before = None
        launches.reset()
        launches.unwatch()
        if last:
            tuning.unwatch()

    def do_profile(self, _: list[Any]) -> Reply:
        from . import profiled

        self.stage = "run"
        profiled.region(self._entry, self._inputs)
        return {}, []

    def do_count(self, _: list[Any], *, metrics: list[str], launches_limit: int) -> Reply:
        """What the GPU's counters say of one call, kernel by kernel; or why this machine can't count."""
        from . import counted

        self.stage = "run"
        return counted.count(self._entry, self._inputs, metrics, launches_limit), []

    def do_profile_file(self, blobs: list[Any], *, shown_as: str, origin: str | None, limit_s: float) -> Reply:
        """Run a kernel file as it stands, for so many seconds at most."""
        from . import profiled

        self.stage = "run"
        profiled.file(blobs[0].decode(), shown_as=shown_as, origin=origin, sources=self._sources, limit_s=limit_s)
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
