# pyright: basic
# torch ships incomplete types.
"""The task file in the trusted worker: described, its inputs made, its reference run, outputs judged."""

from __future__ import annotations

import functools
import math
from types import ModuleType
from typing import Any

import torch

from . import audit, contract, judge, reference, values, variants
from .changes import gap_pairs, leaf_pairs
from .contract import describe
from .differences import named_tensors, resolved
from .failures import Refused
from .reference import call, pick

__all__ = ["Task", "call", "describe", "pick"]

SCALE_LIMITS = (1e-6, 1e12)
"""How far the absolute tolerance follows the outputs' size."""


class Task:
    """A loaded task module with its checked parts, and what was last made, expected and got."""

    def __init__(self, module: ModuleType, device: str) -> None:
        self._module = module
        self._device = device
        self.description = describe(module)
        self._typical: dict[str, dict[str, float]] = {}
        """By case: root mean squares of the outputs for random inputs, by the output's place."""
        self.clear()
        reference.full_precision()

    def twin(self) -> Task:
        """The same task with inputs and outputs of its own."""
        other = Task(self._module, self._device)
        other._typical = self._typical
        return other

    def clear(self) -> None:
        """Let go of inputs and outputs."""
        self._case, self._seed, self._variant = "", 0, "random"
        self.inputs: Any = None
        self.expected: Any = None
        self.exact: Any = None
        self.got: Any = None
        """The outputs judged last."""
        self._upstream: list[torch.Tensor | None] = []
        self._sizes: dict[str, float] = {}
        self.slacks: dict[str, float] = {}
        """By place, what is added to an output's absolute tolerance on these inputs."""
        self._roundings: dict[str, float] = {}
        """By place, what the roundings of the expected outputs add to it, as far as it is known."""

    def make_inputs(
        self,
        case: str,
        seed: int,
        variant: str = "random",
        scale: float | None = None,
        layout: str = "plain",
        slacks: dict[str, float] | None = None,
    ) -> Any:
        """Inputs of a case, made afresh under ``seed``; kept for `expect`.

        Args:
            case: one of the task's.
            seed: of torch's random numbers.
            variant: contents of the floating tensors, see `variants.vary`; ``scale`` belongs to it.
            scale: factor for ``large`` and ``tiny``.
            layout: how the tensors lie in memory, see `variants.lay_out`.
            slacks: what the audit found the variant to need beyond the tolerance.
        """
        # Two generations of inputs at a time might not fit.
        self.clear()
        inputs = self.take_inputs(self.make_random(case, seed), case, seed, variant, scale, layout)
        self.slacks = slacks or {}
        return inputs

    def make_random(self, case: str, seed: int) -> Any:
        """What `make_inputs` of the task file returns under ``seed``; nothing is kept."""
        _seed(seed)
        inputs = self._module.make_inputs(**self.parameters(case), device=self._device)
        if not isinstance(inputs, tuple | dict):
            raise Refused(
                "rejected",
                "inputs",
                f"make_inputs returned a {type(inputs).__name__}; it must return a tuple (positional arguments) or "
                "a dict (keyword arguments), e.g. `return (x,)`",
            )
        values.check(inputs, stage="inputs", where="make_inputs' result")
        return inputs

    def take_inputs(
        self,
        made: Any,
        case: str,
        seed: int,
        variant: str = "random",
        scale: float | None = None,
        layout: str = "plain",
    ) -> Any:
        """Make a variant of random inputs the present ones; ``made`` stays as it is."""
        self.clear()
        self._case, self._seed, self._variant = case, seed, variant
        varied = variants.vary(made, variant, scale)
        self.inputs = variants.lay_out(varied, layout, self.description["in_place"], self._names)
        return self.inputs

    def gives_integers(self) -> bool:
        """Whether the reference returns integers on the inputs made last; False where there is none.

        They are indices or rounded values, and hang on ties: noise in a narrow type makes some where there were none.
        """
        if not hasattr(self._module, "reference"):
            return False
        outputs = reference.run(self._module.reference, values.copy(self.inputs), self.description["in_place"])
        return any(
            not tensor.dtype.is_floating_point and tensor.dtype != torch.bool for tensor in values.tensors(outputs)
        )

    def take_made(self, made: Any, other: Task) -> None:
        """Make other contents of another's inputs the present ones."""
        self.clear()
        self._case, self._seed, self._variant = other._case, other._seed, "contents"
        self.inputs = made

    @property
    def _backward(self) -> bool:
        """Whether gradients are expected as well; timed calls go forward only."""
        return self.description["grad"] and self._variant != "contents"

    @property
    def reference(self) -> Any:
        """The task file's function."""
        return self._module.reference

    def parameters(self, case: str) -> dict[str, Any]:
        """What `make_inputs` is called with for a case."""
        return contract.every_case(self._module)[case]

    def resize(self, case: str, parameters: dict[str, Any]) -> None:
        """Give a visible case other parameters from now on."""
        self._module.CASES[case] = {**self._module.CASES[case], **parameters}

    def expect(self) -> dict[str, Any]:
        """Run the reference on copies of the inputs made last, and keep what it returns.

        Returns:
            ``{"outputs": [...], "aliased": [...], "in_place": [...]}``: what `judge.finiteness` says of each floating
            output and gradient, for each tensor among them whether it lies in an input's memory, and IN_PLACE.
        """
        inputs = values.copy(self.inputs)
        if self._backward:
            self.expected = reference.gradients(
                self._module.reference, inputs, self.description["in_place"], self._draw_upstream
            )
        else:
            self.expected = reference.run(self._module.reference, inputs, self.description["in_place"])
        values.check(self.expected, stage="reference", where="the reference's result")
        owned = {tensor.untyped_storage().data_ptr() for tensor in values.tensors(inputs) if tensor.numel()}
        return self._facts([_lies_in(tensor, owned) for tensor in values.tensors(self.expected)])

    def expect_from(self, expected: Any) -> dict[str, Any]:
        """Take another program's outputs (the baseline's) as the expected ones; facts as from `expect`."""
        self.expected = expected
        return self._facts([False] * len(values.tensors(self.expected)))

    def expect_exact(self) -> dict[str, Any]:
        """Run the reference in double precision, after `expect`, and keep what it returns.

        Returns:
            ``{"reason": None}``, or why that can't be done.
        """
        self.exact, reason = reference.exact(
            self._module.reference,
            self.inputs,
            self.description["in_place"],
            self._upstream if self._backward else None,
        )
        return {"reason": reason}

    def upstream(self) -> list[torch.Tensor | None]:
        """The gradient of each expected output tensor, after `expect`; None for those that carry none."""
        return self._upstream

    def judge(self, got: Any) -> list[dict[str, Any]]:
        """Compare a candidate's outputs with the expected ones; those of the right form are kept for `repeat`."""
        records = self._compare(self.expected, got)
        # Of another form they may be of any size: one element, expanded, claims terabytes.
        if not any(record["mismatch"] for record in records):
            self.got = got
        return records

    def disagreement(self) -> list[dict[str, Any]]:
        """Compare the reference with itself in double precision, rounded to the outputs' types, as a candidate is."""
        return self._compare(self._rounded(self.exact), self.expected, strides=False)

    def size(self, place: str) -> float:
        """Root mean square of an expected output."""
        return self._sizes.get(place, 0.0)

    def wavering(self) -> list[dict[str, Any]]:
        """The same for inputs that are off by a few roundings, as the intermediate results of any program are.

        Where this misses the tolerance, programs that are as good as the reference do: on rows of equal elements, whose
        variance is 0, layer normalization multiplies its roundings by hundreds.
        """
        outputs, reason = reference.exact(
            self._module.reference,
            variants.jittered(self.inputs, self._seed),
            self.description["in_place"],
            self._upstream if self._backward else None,
        )
        return [] if reason is not None else self._compare(self._rounded(outputs), self.expected, strides=False)

    def _rounded(self, exact: Any) -> Any:
        dtypes = iter([tensor.dtype for tensor in values.tensors(self.expected)])
        return reference.mapped(exact, lambda tensor: tensor.to(next(dtypes, tensor.dtype)))

    def accuracy(self, got: Any) -> list[dict[str, Any]]:
        """How far a candidate's outputs and the reference's lie from the exact ones; [] where these are unknown."""
        if self.exact is None:
            return []
        found: list[dict[str, Any]] = []
        gots = dict(self._parts(got))
        exacts = dict(self._parts(self.exact))
        for where, expected in self._parts(self.expected):
            records = judge.accuracy(
                exacts.get(where),
                expected,
                gots.get(where),
                factor=self.description["error_factor"],
                reduction=contract.reduction(self._module, self._case),
            )
            found += [{**record, "where": where + record["where"].removeprefix("output")} for record in records]
        return found

    def repeat(self, got: Any) -> list[dict[str, Any]]:
        """Where outputs differ, bit by bit, from those judged last."""
        return resolved([leaf_pairs(self.got, got, "output")])[0]

    def changed(self, after: Any) -> list[dict[str, Any]]:
        """Where the arguments differ, bit by bit, from those made; those that IN_PLACE names may.

        What lies in memory between the elements of a tensor is nobody's to write to, in place or not.
        """
        if isinstance(after, dict) != isinstance(self.inputs, dict) or not isinstance(after, dict | tuple | list):
            return [{"where": "inputs", "mismatch": f"inputs: a {type(after).__name__} came back"}]
        names = self._names
        if self.description["in_place"] and not names and not isinstance(after, dict):
            raise Refused(
                "rejected",
                "task",
                "IN_PLACE names arguments, make_inputs returns a tuple, and there is no reference whose parameters say "
                "which is which: let make_inputs return a dict, or add PARAMETERS = ('x', 'out'), the entry's in order",
            )
        before, now = (reference.arguments(side, names) for side in (self.inputs, after))
        if [place for place, _, _ in before] != [place for place, _, _ in now]:
            return [{"where": "inputs", "mismatch": f"inputs: {len(before)} went and {len(now)} others came back"}]
        pairs: list[list[Any]] = []
        for (place, name, made), (_, _, other) in zip(before, now, strict=True):
            label = f"input[{place}]" if name is None else f"input {name}"
            pairs.append([] if name in self.description["in_place"] else leaf_pairs(made, other, label))
            pairs.append(gap_pairs(made, other, f"memory between the elements of {label}"))
        # All at once: each look at the device takes longer than to compare a small tensor.
        found = resolved(pairs)
        return [record for changed, gaps in zip(found[::2], found[1::2], strict=True) for record in changed or gaps]

    def impostors(self) -> list[str]:
        """Wrong programs whose outputs would be taken for the expected ones, by name."""
        return audit.impostors(self.expected, self.inputs, lambda one, other: self._compare(one, other, strides=False))

    def audit(self, case: str, seed: int) -> dict[str, Any]:
        """What can be said of a case and of how well its reference judges; see `audit.audit`."""
        return audit.audit(self, case, seed)

    def work(self, case: str) -> dict[str, float] | None:
        """Minimum useful bytes and operations of a case, or None where the task does not say."""
        function = getattr(self._module, "work", None)
        if function is None:
            return None
        found = function(**self.parameters(case))
        if not isinstance(found, dict) or not set(found) <= {"bytes", "flops"}:
            raise Refused(
                "rejected",
                "task",
                f"work() returned {found!r}; it must return {{'bytes': ..., 'flops': ...}}",
            )
        for name, value in found.items():
            if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise Refused("rejected", "task", f"work() gives {name} = {value!r}; it must be a number of 0 or more")
        return {name: float(value) for name, value in found.items()}

    def _compare(self, expected: Any, got: Any, *, strides: bool | None = None) -> list[dict[str, Any]]:
        gots = dict(self._parts(got))
        records: list[dict[str, Any]] = []
        for where, part in self._parts(expected):
            other = gots.get(where)
            if where != "output" and part is None and isinstance(other, torch.Tensor) and self._fits_input(other):
                # A gradient of nothing but zeros is as good as none.
                part = torch.zeros_like(other)
            scales = [self._scale(place) for place in named_tensors(part, where)]
            # How a gradient lies in memory is autograd's affair.
            checked = where == "output" and (self.description["strides"] if strides is None else strides)
            rules = judge.Rules(
                self.description["tolerances"],
                own=frozenset(self.description["own_tolerances"]),
                strides=checked,
                reduction=contract.reduction(self._module, self._case) if self._case else None,
                atol_scales=scales,
                slacks=self.slacks,
                # Known from the first comparison with the same outputs.
                roundings=self._roundings if expected is self.expected else {},
            )
            records += judge.compare(part, other, rules, where)
        unknown = gots.keys() - dict(self._parts(expected)).keys()
        return records + [{"where": where, "mismatch": f"{where}: there is no such input"} for where in unknown]

    def _fits_input(self, gradient: torch.Tensor) -> bool:
        """Whether it is no larger than an input: one element, expanded, may claim terabytes."""
        return gradient.numel() <= max((tensor.numel() for tensor in values.tensors(self.inputs)), default=0)

    def _scale(self, place: str) -> float:
        """How much larger an expected tensor is than for random inputs of the case."""
        size, typical = self._sizes.get(place, 0.0), self._typical.get(self._case, {}).get(place, 0.0)
        if not (0 < size < math.inf and 0 < typical < math.inf):
            return 1.0
        return min(max(size / typical, SCALE_LIMITS[0]), SCALE_LIMITS[1])

    def _parts(self, tree: Any) -> list[tuple[str, Any]]:
        """The trees to compare, by what they are called: the outputs and, where there are any, each gradient."""
        if not self._backward:
            return [("output", tree)]
        if not isinstance(tree, dict) or set(tree) != {"outputs", "gradients"}:
            return []
        parts = [("output", tree["outputs"])]
        if isinstance(tree["gradients"], dict):
            parts += [(f"gradient of {self._label(place)}", value) for place, value in tree["gradients"].items()]
        return parts

    def _label(self, place: Any) -> str:
        """An input's place with the parameter's name in it, where it is known."""
        position, bracket, rest = str(place).partition("[")
        if isinstance(self.inputs, dict):
            return str(place)
        names = {str(i): name for i, name in enumerate(self._names)}
        return names.get(position, f"input[{position}]") + bracket + rest

    def _facts(self, aliased: list[bool]) -> dict[str, Any]:
        self._roundings = {}
        outputs = [record for where, part in self._parts(self.expected) for record in judge.finiteness(part, where)]
        self._sizes = {record["where"]: record["rms"] for record in outputs}
        if self._variant == "random":
            self._typical[self._case] = self._sizes
        size = values.size_bytes(self.expected)
        return {"outputs": outputs, "aliased": aliased, "in_place": self.description["in_place"], "bytes": size}

    def _draw_upstream(self, outputs: Any) -> list[torch.Tensor | None]:
        self._upstream = reference.draw_upstream(outputs, self._seed + 1)
        if all(gradient is None for gradient in self._upstream):
            raise Refused("rejected", "task", "GRAD is True, but no output of the reference carries a gradient")
        return self._upstream

    @functools.cached_property
    def _names(self) -> list[str]:
        """Names of the arguments as the reference has them, or as the task states them where it has none."""
        if not hasattr(self._module, "reference"):
            return list(getattr(self._module, "PARAMETERS", ()))
        return reference.parameter_names(self._module.reference)


def _seed(seed: int) -> None:
    """`torch.manual_seed`, without what it does for devices that are not there: that takes longer than small inputs."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def _lies_in(tensor: torch.Tensor, owned: set[int]) -> bool:
    return tensor.numel() > 0 and tensor.untyped_storage().data_ptr() in owned
