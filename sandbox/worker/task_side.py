# pyright: basic
# torch ships incomplete types.
"""Requests that the trusted worker answers: it runs the task file, knows what is expected, and compares."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from . import canary, load, scaling, values
from .contents import NONE, Alternatives, Contents, alternative, constants
from .failures import Refused, Sources
from .repeated import Repeated
from .task import Task
from .timed_side import TimedSide

Reply = tuple[dict[str, Any], list[Any]]

CEILINGS_S = 10.0
"""What has not been measured by then stays unknown."""


class TaskSide(TimedSide):
    """A task, and what is known of its inputs made last: twice, so that the next are made while a kernel has the first.

    ``slot`` says which of the two a request means.
    """

    def __init__(self, device: str, sources: Sources) -> None:
        self._device = device
        self._sources = sources
        self._slots: list[Task] = []
        self._contents: Contents | None = None
        self.stage = "task"

    def do_load_task(self, blobs: list[Any], *, shown_as: str, origin: str | None) -> Reply:
        module = load.load_module(
            blobs[0].decode(), name="task", shown_as=shown_as, stage="task", origin=origin, sources=self._sources
        )
        task = Task(module, self._device)
        self._slots = [task, task.twin()]
        return {"task": task.description}, []

    def do_shrink(self, _: list[Any], *, case: str, elements: int) -> Reply:
        self.stage = "inputs"
        return {"parameters": scaling.shrink(self._slots[0], case, elements)}, []

    def do_audit(self, _: list[Any], *, case: str, seed: int) -> Reply:
        self.stage = "reference"
        return self._slots[0].audit(case, seed), []

    def do_impostors(self, _: list[Any]) -> Reply:
        self.stage = "reference"
        return {"impostors": self._slots[0].impostors()}, []

    def do_make_inputs(
        self,
        _: list[Any],
        *,
        case: str,
        seed: int,
        variant: str,
        scale: float | None,
        layout: str,
        slacks: dict[str, float],
        slot: int,
        contents: str,
    ) -> Reply:
        """Inputs; with ``contents`` "repeated", large random ones repeat a block, see `repeated`."""
        self.stage = "inputs"
        with Repeated() if contents == "repeated" else contextlib.nullcontext():
            inputs = self._slots[slot].make_inputs(case, seed, variant, scale, layout, slacks)
        return _encoded(inputs, "inputs", "make_inputs' result")

    def do_make_and_expect(self, _: list[Any], *, slot: int, **of: Any) -> Reply:
        """Inputs, and what the reference makes of them."""
        fields, blobs = self.do_make_inputs([], slot=slot, **of)
        self.stage = "reference"
        return {**fields, "expected": self._slots[slot].expect()}, blobs

    def do_work(self, _: list[Any], *, case: str) -> Reply:
        self.stage = "task"
        return {"work": self._slots[0].work(case)}, []

    def do_expect_exact(self, _: list[Any], *, slot: int) -> Reply:
        self.stage = "reference"
        return self._slots[slot].expect_exact(), []

    def do_expect_from(self, blobs: list[Any], *, tree: dict[str, Any], slot: int) -> Reply:
        self.stage = "reference"
        return self._slots[slot].expect_from(self._decoded(_part(tree, "outputs"), blobs)), []

    def do_make_alternatives(self, _: list[Any], *, case: str, seeds: list[int]) -> Reply:
        """What noise can't vary of a case's inputs, under other seeds, where all else about them is the same."""
        task, found = self._slots[0], list[Any]()
        whole = task.gives_integers()
        self.stage = "inputs"
        if constants(task.inputs, whole=whole):
            made = (alternative(task.inputs, task.make_random(case, seed), whole=whole) for seed in seeds)
            found = [others for others in made if others is not None]
        self._alternatives = Alternatives(whole, found)
        return _encoded(self._alternatives._asdict(), "inputs", "make_inputs' result")

    def do_keep_contents(self, _: list[Any], *, seed: int | None) -> Reply:
        """From the inputs in slot 0, be ready for `do_vary`."""
        self.stage = "inputs"
        self._contents = Contents(self._slots[0].inputs, seed, self._alternatives or NONE)
        return {"varies": self._contents.varies}, []

    def do_vary(self, _: list[Any], *, number: int) -> Reply:
        """The inputs of slot 0 with other contents in slot 1, and what the reference makes of them."""
        task = self._varied(number)
        self.stage = "reference"
        return {"expected": task.expect()}, []

    def do_vary_from(self, blobs: list[Any], *, tree: dict[str, Any], number: int) -> Reply:
        """The same with another program's outputs as the expected ones."""
        task = self._varied(number)
        self.stage = "reference"
        return {"expected": task.expect_from(self._decoded(_part(tree, "outputs"), blobs))}, []

    def do_judge_outputs(self, blobs: list[Any], *, tree: dict[str, Any], slot: int, exact: bool) -> Reply:
        """The outputs of a call alone: there was no margin around its tensors."""
        task = self._slots[slot]
        if exact:
            self.stage = "reference"
            task.expect_exact()
        self.stage = "compare"
        records, got = self._judged(task, _part(tree, "outputs"), blobs)
        return {
            "outputs": records,
            "accuracy": [] if got is None else task.accuracy(got),
            "changed": [],
            "broken": [],
        }, []

    def do_time_reference(self, _: list[Any], *, compiled: bool) -> Reply:
        """From now on the reference is what is timed, on the inputs in slot 0."""
        self.stage = "reference"
        task = self._slots[0]
        self._entry, self._inputs, self._in_place = task.reference, task.inputs, task.description["in_place"]
        if compiled:
            from .compiled import compiled as compile_reference

            self._entry = compile_reference(task.reference, task.inputs)
        return {}, []

    def do_ceilings(self, _: list[Any]) -> Reply:
        """What this device reaches at best."""
        from . import ceilings

        self.stage = "worker"
        return ceilings.measure(CEILINGS_S), []

    def do_upstream(self, _: list[Any], *, slot: int) -> Reply:
        self.stage = "reference"
        return _encoded(self._slots[slot].upstream(), "reference", "the outputs' gradients")

    def do_judge(self, blobs: list[Any], *, tree: dict[str, Any], key: str, slot: int) -> Reply:
        self.stage = "compare"
        task = self._slots[slot]
        found: dict[str, Any] = {"outputs": [], "accuracy": [], "changed": [], "broken": []}
        found["outputs"], got = self._judged(task, _part(tree, "outputs"), blobs)
        if got is not None:
            found["accuracy"] = task.accuracy(got)
        elif found["outputs"]:
            return found, []
        found["changed"] = self._changed(task, _part(tree, "inputs"), blobs)
        found["broken"] = self._broken(_part(tree, "margins"), blobs, bytes.fromhex(key))
        return found, []

    def do_repeat(self, blobs: list[Any], *, tree: dict[str, Any], slot: int) -> Reply:
        self.stage = "compare"
        try:
            return {"differing": self._slots[slot].repeat(self._decoded(_part(tree, "outputs"), blobs))}, []
        except ValueError as error:
            return {"differing": [{"where": "output", "mismatch": f"output: {error}"}]}, []

    def _judged(self, task: Task, outputs: dict[str, Any], blobs: list[Any]) -> tuple[list[dict[str, Any]], Any]:
        """The comparison's records, and the outputs; None where these lie on another device."""
        strays = values.strays(outputs, self._device.partition(":")[0])
        if strays:
            message = f"output: {strays} of its tensors lie on the wrong device; expected {self._device}"
            return [{"where": "output", "mismatch": message}], None
        got = self._decoded(outputs, blobs)
        return task.judge(got), got

    def _varied(self, number: int) -> Task:
        self.stage = "inputs"
        assert self._contents is not None
        base, task = self._slots
        task.take_made(self._contents.make(number), base)
        return task

    def _broken(self, tree: dict[str, Any], blobs: list[Any], key: bytes) -> list[dict[str, Any]]:
        margins = self._decoded(tree, blobs)
        try:
            if isinstance(margins, torch.Tensor):
                return canary.broken(margins, key)
            found = f"margins are a tensor, not a {type(margins).__name__}"
        except ValueError as error:
            found = str(error)
        raise Refused("cheating", "compare", f"the kernel's worker sent a result without margins: {found}")

    def _changed(self, task: Task, tree: dict[str, Any], blobs: list[Any]) -> list[dict[str, Any]]:
        try:
            return task.changed(self._decoded(tree, blobs))
        except ValueError as error:
            return [{"where": "inputs", "mismatch": f"inputs: {error}"}]

    def _decoded(self, tree: dict[str, Any], blobs: list[Any]) -> Any:
        return values.decode(tree, blobs, self._device)


def _encoded(value: Any, stage: str, where: str) -> Reply:
    blobs: list[Any] = []
    return {"tree": values.encode(value, blobs, stage=stage, where=where)}, blobs


def _part(tree: dict[str, Any], name: str) -> dict[str, Any]:
    """One part of what a kernel's call gave.

    Raises:
        Refused: the kernel's worker sent something else.
    """
    for key, node in tree.get("dict", ()):
        if key == name:
            return node
    raise Refused("cheating", "compare", f"the kernel's worker sent a result without {name}")
