# pyright: basic
# torch ships incomplete types.
"""The task file in the trusted worker: described, its inputs made, its reference run, outputs judged."""

from __future__ import annotations

import inspect
import math
from types import ModuleType
from typing import Any

import torch

from . import judge, values
from .failures import Refused

META_FIELDS = {"weight": 1.0, "small": False}
"""Fields of a case that belong to the harness and are not passed to `make_inputs`."""

CASE_NAME_LIMIT = 60

FORM = (
    "A task file defines ENTRY = 'function_name', CASES = {'case_name': {'parameter': value, ...}} and "
    "def make_inputs(<parameters>, device) returning a tuple or dict of arguments; optional: HIDDEN_CASES, "
    "reference(*inputs), TOLERANCE, work(<parameters>), IN_PLACE."
)


class Task:
    """A loaded task module with its checked parts."""

    def __init__(self, module: ModuleType, device: str) -> None:
        self._module = module
        self._device = device
        self.description = describe(module)
        self._inputs: Any = None
        self._expected: Any = None

    def make_inputs(self, case: str, seed: int) -> Any:
        """Inputs of a case, made afresh under ``seed``; kept for `expect`."""
        parameters = self._parameters(case)
        torch.manual_seed(seed)
        inputs = self._module.make_inputs(**parameters, device=self._device)
        if not isinstance(inputs, tuple | dict):
            raise Refused(
                "rejected",
                "inputs",
                f"make_inputs returned a {type(inputs).__name__}; it must return a tuple (positional arguments) or "
                "a dict (keyword arguments), e.g. `return (x,)`",
            )
        self._inputs = inputs
        return inputs

    def expect(self) -> Any:
        """What the reference returns for the inputs made last, on copies of its own."""
        inputs = values.copy(self._inputs)
        with torch.no_grad():
            returned = call(self._module.reference, inputs)
        in_place = self.description["in_place"]
        self._expected = pick(returned, inputs, in_place, self._module.reference)
        return self._expected

    def expect_from(self, expected: Any) -> None:
        """Take another program's outputs (the baseline's) as the expected ones."""
        self._expected = expected

    def judge(self, got: Any) -> list[dict[str, Any]]:
        """Compare a candidate's outputs with the expected ones."""
        return judge.compare(self._expected, got, self.description["tolerances"])

    def work(self, case: str) -> dict[str, float] | None:
        """Minimum useful bytes and operations of a case, or None where the task does not say."""
        function = getattr(self._module, "work", None)
        if function is None:
            return None
        found = function(**self._parameters(case))
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

    def _parameters(self, case: str) -> dict[str, Any]:
        every = {**self._module.CASES, **getattr(self._module, "HIDDEN_CASES", {})}
        return {name: value for name, value in every[case].items() if name not in META_FIELDS}


def call(function: Any, inputs: Any) -> Any:
    """Call with positional (tuple) or keyword (dict) inputs."""
    return function(**inputs) if isinstance(inputs, dict) else function(*inputs)


def pick(returned: Any, inputs: Any, in_place: list[str], function: Any) -> Any:
    """The outputs: what was returned, or the mutated inputs that IN_PLACE names."""
    if not in_place:
        return returned
    named = inputs if isinstance(inputs, dict) else dict(zip(_parameter_names(function), inputs, strict=False))
    missing = [name for name in in_place if name not in named]
    if missing:
        raise Refused("rejected", "task", f"IN_PLACE names {missing}; the arguments are {sorted(named)}")
    return {name: named[name] for name in in_place}


def _parameter_names(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def describe(module: ModuleType) -> dict[str, Any]:
    """Check the module against the task contract; what it says as plain data.

    Raises:
        Refused: a part is missing or malformed; the message names it and shows the expected form.
    """
    entry = getattr(module, "ENTRY", None)
    if not isinstance(entry, str) or not entry.isidentifier():
        raise _bad(
            f"ENTRY must be the name of the kernel file's host function, e.g. ENTRY = 'softmax'; it is {entry!r}"
        )
    make_inputs = getattr(module, "make_inputs", None)
    if not callable(make_inputs):
        raise _bad("make_inputs is missing: def make_inputs(<the case's parameters>, device): return (x, ...)")
    cases = _cases(module, "CASES", make_inputs)
    if not cases:
        raise _bad("CASES is empty; give at least one, e.g. CASES = {'train': {'rows': 4096, 'cols': 1024}}")
    hidden = _cases(module, "HIDDEN_CASES", make_inputs) if hasattr(module, "HIDDEN_CASES") else {}
    if both := sorted(set(cases) & set(hidden)):
        raise _bad(f"{both} stand both in CASES and in HIDDEN_CASES; names must differ")
    in_place = getattr(module, "IN_PLACE", ())
    if not isinstance(in_place, list | tuple) or not all(isinstance(name, str) for name in in_place):
        raise _bad(f"IN_PLACE must be a tuple of argument names, e.g. IN_PLACE = ('out',); it is {in_place!r}")
    for name in ("reference", "work", "reduction", "setup"):
        if hasattr(module, name) and not callable(getattr(module, name)):
            raise _bad(f"{name} must be a function; it is a {type(getattr(module, name)).__name__}")
    return {
        "entry": entry,
        "title": (module.__doc__ or "").strip().splitlines()[0][:200] if (module.__doc__ or "").strip() else None,
        "cases": cases,
        "hidden_cases": hidden,
        "has_reference": hasattr(module, "reference"),
        "has_work": hasattr(module, "work"),
        "in_place": list(in_place),
        "tolerances": _tolerances(module),
    }


def _cases(module: ModuleType, attribute: str, make_inputs: Any) -> dict[str, Any]:
    cases = getattr(module, attribute, None)
    if not isinstance(cases, dict):
        form = f"{attribute} = {{'train': {{'rows': 4096, 'cols': 1024}}}}"
        raise _bad(f"{attribute} must be a dict of named cases, e.g. {form}; it is {type(cases).__name__}")
    found: dict[str, Any] = {}
    for name, case in cases.items():
        if isinstance(name, str) and not (name.isprintable() and 0 < len(name) <= CASE_NAME_LIMIT):
            raise _bad(
                f"{attribute} has a case named {name[:CASE_NAME_LIMIT]!r}; names are 1 to 60 printable characters"
            )
        if not isinstance(name, str) or not isinstance(case, dict) or not all(isinstance(key, str) for key in case):
            raise _bad(
                f"{attribute}[{name!r}] must be a dict of parameters, e.g. {{'rows': 4096}}; it is {case!r}"[:500]
            )
        weight = case.get("weight", 1.0)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not (0 < weight < math.inf):
            raise _bad(f"{attribute}[{name!r}]['weight'] must be a positive number; it is {weight!r}")
        parameters = {key: value for key, value in case.items() if key not in META_FIELDS}
        try:
            inspect.signature(make_inputs).bind(**parameters, device="cpu")
        except TypeError as error:
            raise _bad(
                f"make_inputs can't take case {name!r}: {error}. It is called as "
                f"make_inputs({', '.join(f'{key}={value!r}' for key, value in parameters.items())}, device=...)"
            ) from error
        found[name] = {
            "parameters": _json(parameters),
            "weight": float(weight),
            "small": bool(case.get("small", False)),
        }
    return found


DEFAULT_TOLERANCES: dict[str, dict[str, float]] = {
    # torch.testing.assert_close's defaults, https://docs.pytorch.org/docs/stable/testing.html
    "float16": {"rtol": 1e-3, "atol": 1e-5},
    "bfloat16": {"rtol": 1.6e-2, "atol": 1e-5},
    "float32": {"rtol": 1.3e-6, "atol": 1e-5},
    "float64": {"rtol": 1e-7, "atol": 1e-7},
    "complex64": {"rtol": 1.3e-6, "atol": 1e-5},
    "complex128": {"rtol": 1e-7, "atol": 1e-7},
    # One unit in the last place of the format: 2^-3 for e4m3, 2^-2 for e5m2 (OCP FP8 specification).
    "float8_e4m3fn": {"rtol": 0.125, "atol": 2**-9},
    "float8_e5m2": {"rtol": 0.25, "atol": 2**-16},
    **{name: {"rtol": 0.0, "atol": 0.0} for name in ("bool", "uint8", "int8", "int16", "int32", "int64")},
}


def _tolerances(module: ModuleType) -> dict[str, dict[str, float]]:
    given = getattr(module, "TOLERANCE", {})
    form = "TOLERANCE = {'float16': {'rtol': 1e-3, 'atol': 1e-5}}"
    if not isinstance(given, dict):
        raise _bad(f"TOLERANCE must be a dict by dtype name, e.g. {form}; it is {type(given).__name__}")
    tolerances = {name: dict(value) for name, value in DEFAULT_TOLERANCES.items()}
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(getattr(torch, name, None), torch.dtype):
            raise _bad(f"TOLERANCE has the key {name!r}, which is no dtype name; e.g. {form}")
        if not isinstance(value, dict) or not set(value) <= {"rtol", "atol"}:
            raise _bad(f"TOLERANCE[{name!r}] must be {{'rtol': ..., 'atol': ...}}; it is {value!r}")
        for part, number in value.items():
            if isinstance(number, bool) or not isinstance(number, int | float) or not (0 <= number < math.inf):
                raise _bad(f"TOLERANCE[{name!r}][{part!r}] must be a number of 0 or more; it is {number!r}")
        # By the dtype's own name: torch.half is torch.float16.
        tolerances[str(getattr(torch, name)).removeprefix("torch.")] = {
            "rtol": 0.0,
            "atol": 0.0,
            **{part: float(number) for part, number in value.items()},
        }
    return tolerances


def _bad(message: str) -> Refused:
    return Refused("rejected", "task", f"{message}. {FORM}")


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    return value if isinstance(value, bool | int | str) or value is None else str(value)
