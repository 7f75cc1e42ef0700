# pyright: basic
# torch ships incomplete types.
"""What can be found out about a task before it judges anybody: whether its reference is steady, finite and accurate,
whether wrong programs would pass, and which inputs other than random ones it can judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from . import judge, reference, values, variants
from .failures import Refused

if TYPE_CHECKING:
    from .task import Task

SAMPLE = 1 << 16
"""Elements of each output on which an impostor is tried first: hardly one gets any further."""

SHUFFLE_SEED = 0

SLACK = 4.0
"""Times what jittered inputs change an output by: a program has several intermediates, each rounded."""
LARGEST_SLACK = 0.25
"""Of an output's root mean square."""

STRICT = {"input copy": {"rtol": 0.0, "atol": 0.0}, "input mean": {"rtol": 1e-3, "atol": 1e-6}}
"""Impostors that an operation may be, with what they may then be off by, on any inputs."""

INDICES = (torch.int32, torch.int64)
"""Types of outputs that may be indices of elements; narrower integers are mostly rounded numbers."""

Take = Callable[[torch.Tensor], torch.Tensor]
"""The elements of a tensor that are looked at, as one dimension."""
Fake = Callable[[torch.Tensor, Take], torch.Tensor]
"""What an impostor returns in place of an output, for the elements that are looked at."""
Compare = Callable[[Any, Any], list[dict[str, Any]]]
"""Expected outputs and got ones to the records of `judge.compare`."""


def audit(task: Task, case: str, seed: int) -> dict[str, Any]:
    """Look into a case on random inputs and on variants of them. The task forgets its inputs and outputs.

    Returns:
        ``nondeterministic``: records of `judge.differing` for two runs of the reference on the same inputs;
        ``outputs``: those of `judge.finiteness`; ``impostors``: names, see `impostors`; ``exact``: None or the reason
        why there is no float64 reference; ``variants``: ``[{"name", "scale"}]`` that the reference can judge;
        ``skipped``: ``[{"name", "reason"}]``, the others.

    Raises:
        Refused: the task has no reference.
    """
    if not task.description["has_reference"]:
        raise Refused("rejected", "task", "the task has no reference to look into")
    made = task.make_random(case, seed)
    try:
        task.take_inputs(made, case, seed)
        facts = task.expect()
        unsteady = _unsteady(task)
        passing = task.impostors()
        if passing:
            passing = [name for name in passing if not _is_the_operation(task, name, made, case, seed)]
            task.take_inputs(made, case, seed)
            task.expect()
        reason = task.expect_exact()["reason"]
        admitted, skipped = _admit(task, made, case, seed, has_exact=reason is None)
    finally:
        task.clear()
    return {
        "nondeterministic": unsteady, "outputs": facts["outputs"], "impostors": passing, "exact": reason,
        "variants": admitted, "skipped": skipped,
    }  # fmt: skip


def _unsteady(task: Task) -> list[dict[str, Any]]:
    """Where a second run of the reference returns something else; the first run's outputs stay the expected ones."""
    first = task.expected
    task.expect()
    try:
        return judge.differing(first, task.expected)
    except ValueError as error:
        return [{"where": "output", "mismatch": str(error)}]


def _admit(
    task: Task, made: Any, case: str, seed: int, *, has_exact: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The variants that the reference can judge, and the others with the reason."""
    admitted: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    if not any(variants.is_changed(tensor) for tensor in values.tensors(made)):
        return admitted, skipped
    for name in (*variants.STRUCTURED, *task.description["special_values"]):
        if not has_exact and name in variants.STRUCTURED and name not in variants.PLAIN:
            skipped.append({"name": name, "reason": "no float64 reference"})
            continue
        reason = ""
        for scale in variants.scales(made, name):
            task.take_inputs(made, case, seed, name, scale)
            special = name in task.description["special_values"]
            reason = _objection(task, special=special, has_exact=has_exact)
            if reason is None and not special and _hangs_on_ties(task, seed):
                reason = "indices there hang on ties: equal elements may come in any order"
            slacks: dict[str, float] | None = {}
            if reason is None and has_exact and not special:
                slacks = _slacks(task)
                reason = None if slacks is not None else "ill-conditioned: roundings of the inputs change the outputs"
            if reason is None:
                admitted.append({"name": name, "scale": scale, "slacks": slacks})
                break
        else:
            skipped.append({"name": name, "reason": reason})
    return admitted, skipped


def _is_the_operation(task: Task, name: str, made: Any, case: str, seed: int) -> bool:
    """Whether an impostor is what the reference computes, as for a copy or a mean, and no wrong program."""
    if name not in STRICT or task.description["grad"]:
        return False
    if not any(variants.is_changed(tensor) for tensor in values.tensors(made)):
        return False
    tolerances = dict.fromkeys(task.description["tolerances"], STRICT[name])
    rules = judge.Rules(tolerances, own=frozenset(tolerances))
    for variant in ("random", "ramp", "shifted"):
        task.take_inputs(made, case, seed, variant)
        task.expect()
        if name not in impostors(task.expected, task.inputs, lambda one, other: judge.compare(one, other, rules)):
            return False
    return True


def _objection(task: Task, *, special: bool, has_exact: bool) -> str | None:
    """Why the reference can't judge the present inputs, or None."""
    try:
        outputs = task.expect()["outputs"]
    except reference.REFUSALS as error:
        return reference.in_words(error, "the reference fails")
    allowed = task.description["special_values"]
    if not special and any(record[value] for record in outputs for value in ("nan", "inf") if value not in allowed):
        return "the reference's outputs are not finite"
    if not has_exact:
        return None
    reason = task.expect_exact()["reason"]
    if reason is not None:
        return reason
    records = task.disagreement()
    if not _agree(records):
        elements = sum(record.get("wrong_elements", 0) for record in records)
        return f"ill-conditioned: {elements} elements of the reference's outputs are wrong by the task's own tolerance"
    return None


def _slacks(task: Task) -> dict[str, float] | None:
    """What a program that rounds otherwise may be off by beyond the tolerance on the present inputs, by output.

    None: so much that nothing would be told.
    """
    found: dict[str, float] = {}
    for record in task.wavering():
        if record["mismatch"] or record["not_finite_mismatches"]:
            return None
        if record["wrong_elements"]:
            found[record["where"]] = SLACK * record["max_abs_error"]
            if not found[record["where"]] < LARGEST_SLACK * task.size(record["where"]):
                return None
    return found


def _hangs_on_ties(task: Task, seed: int) -> bool:
    """Whether integers of the outputs, as the indices of a sort are, change with the inputs' last bits."""
    first = task.expected
    before = [tensor for tensor in values.tensors(first) if tensor.dtype in INDICES]
    if not before:
        return False
    inputs, exact = task.inputs, task.exact
    task.inputs = variants.nudged(inputs, seed)
    try:
        task.expect()
        after = [tensor for tensor in values.tensors(task.expected) if tensor.dtype in INDICES]
    except reference.REFUSALS:
        return True
    finally:
        task.inputs, task.expected, task.exact = inputs, first, exact
    return len(before) != len(after) or not all(map(torch.equal, before, after))


def impostors(expected: Any, inputs: Any, compare: Compare) -> list[str]:
    """Programs that don't compute what is asked for and would pass all the same, by name.

    ``zeros``; ``ones``; ``input copy``: an input with as many elements; ``input mean``: the mean of the first floating
    input, everywhere; ``shuffled reference``: the expected outputs, their elements in another order. Each replaces all
    output tensors that have elements.
    """
    outputs = [tensor for tensor in values.tensors(expected) if tensor.numel()]
    if not outputs:
        return []
    passing: list[str] = []
    for name, fake in _fakes(outputs, values.tensors(inputs)):
        if name not in passing and all(_passes(expected, fake, take, compare) for take in (_sample, _everything)):
            passing.append(name)
    return passing


def _fakes(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> Iterator[tuple[str, Fake]]:
    yield "zeros", lambda output, take: torch.zeros_like(take(output))
    yield "ones", lambda output, take: _filled(take(output), torch.ones((), device=output.device))
    alike = [[tensor for tensor in inputs if _fits(tensor, output)] for output in outputs]
    if all(alike):
        # With several inputs of the size, each in its turn.
        for turn in range(max(map(len, alike))):
            yield "input copy", lambda output, take, turn=turn: _copied(output, inputs, take, turn)
    floating = [tensor for tensor in inputs if tensor.is_floating_point() and tensor.numel()]
    if floating:
        mean = floating[0].detach().to(torch.float32).mean()
        yield "input mean", lambda output, take: _filled(take(output), mean)
    if any(output.numel() > 1 for output in outputs):
        yield "shuffled reference", lambda output, take: _shuffled(take(output))


def _passes(expected: Any, fake: Fake, take: Take, compare: Compare) -> bool:
    looked_at = reference.mapped(expected, take)
    faked = reference.mapped(expected, lambda tensor: fake(tensor, take) if tensor.numel() else take(tensor))
    return _agree(compare(looked_at, faked))


def _agree(records: list[dict[str, Any]]) -> bool:
    return not any(record["mismatch"] or record["wrong_elements"] for record in records)


def _everything(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    flat = _everything(tensor)
    # An odd step, as rows mostly have an even length: the sample shall not lie in a few columns.
    return flat[:: flat.numel() // SAMPLE | 1] if flat.numel() > SAMPLE else flat


def _filled(like: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(like).copy_(value)


def _fits(tensor: torch.Tensor, output: torch.Tensor) -> bool:
    return tensor.numel() == output.numel() and tensor.is_complex() == output.is_complex()


def _copied(output: torch.Tensor, inputs: list[torch.Tensor], take: Take, turn: int) -> torch.Tensor:
    alike = [tensor for tensor in inputs if _fits(tensor, output)]
    return take(alike[min(turn, len(alike) - 1)]).to(output.device, output.dtype)


def _shuffled(flat: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator(flat.device).manual_seed(SHUFFLE_SEED)
    return flat[torch.randperm(flat.numel(), generator=generator, device=flat.device)]
