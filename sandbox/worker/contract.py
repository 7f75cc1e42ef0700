# pyright: basic
# torch ships incomplete types.
"""The task contract: what a task file may say, each part checked, as plain data."""

from __future__ import annotations

import inspect
import math
from types import ModuleType
from typing import Any

import torch

from .failures import Refused

META_FIELDS = {"weight": 1.0, "small": False}
"""Fields of a case that belong to the harness and are not passed to `make_inputs`."""

CASE_NAME_LIMIT = 60

SPECIAL_VALUES = ("nan", "inf")
"""Values that are not finite and that a task may allow in its inputs."""
VIEWS = ("offset", "strided", "broadcast")
"""Ways for a tensor to lie in memory that a task may ask its kernels to cope with."""

FORM = (
    "A task file defines ENTRY = 'function_name', CASES = {'case_name': {'parameter': value, ...}} and "
    "def make_inputs(<parameters>, device) returning a tuple or dict of arguments; optional: HIDDEN_CASES, "
    "reference(*inputs), TOLERANCE, ERROR_FACTOR, work(<parameters>), reduction(<parameters>), IN_PLACE, PARAMETERS, "
    "GRAD, SPECIAL_VALUES, VIEWS, STRIDES, NONDETERMINISTIC."
)


def describe(module: ModuleType) -> dict[str, Any]:
    """Check the module against the task contract; what it says as plain data.

    Raises:
        Refused: a part is missing or malformed; the message names it and shows the expected form.
    """
    entry = getattr(module, "ENTRY", None)
    if not isinstance(entry, str) or not entry.isidentifier():
        raise bad(f"ENTRY must be the name of the kernel file's host function, e.g. ENTRY = 'softmax'; it is {entry!r}")
    make_inputs = getattr(module, "make_inputs", None)
    if not callable(make_inputs):
        raise bad("make_inputs is missing: def make_inputs(<the case's parameters>, device): return (x, ...)")
    cases = _cases(module, "CASES", make_inputs)
    if not cases:
        raise bad("CASES is empty; give at least one, e.g. CASES = {'train': {'rows': 4096, 'cols': 1024}}")
    hidden = _cases(module, "HIDDEN_CASES", make_inputs) if hasattr(module, "HIDDEN_CASES") else {}
    if both := sorted(set(cases) & set(hidden)):
        raise bad(f"{both} stand both in CASES and in HIDDEN_CASES; names must differ")
    in_place = getattr(module, "IN_PLACE", ())
    if not isinstance(in_place, list | tuple) or not all(isinstance(name, str) for name in in_place):
        raise bad(f"IN_PLACE must be a tuple of argument names, e.g. IN_PLACE = ('out',); it is {in_place!r}")
    parameters = getattr(module, "PARAMETERS", ())
    if not isinstance(parameters, list | tuple) or not all(isinstance(name, str) for name in parameters):
        raise bad(f"PARAMETERS must be the names of the entry's parameters in order; it is {parameters!r}")
    for name in ("reference", "work", "reduction", "setup"):
        if hasattr(module, name) and not callable(getattr(module, name)):
            raise bad(f"{name} must be a function; it is a {type(getattr(module, name)).__name__}")
    found = {
        "entry": entry,
        "title": (module.__doc__ or "").strip().splitlines()[0][:200] if (module.__doc__ or "").strip() else None,
        "cases": cases,
        "hidden_cases": hidden,
        "has_reference": hasattr(module, "reference"),
        "has_work": hasattr(module, "work"),
        "has_reduction": hasattr(module, "reduction"),
        "in_place": list(in_place),
        "tolerances": _tolerances(module),
        "own_tolerances": sorted({_dtype_name(name) for name in getattr(module, "TOLERANCE", {})}),
        "error_factor": _error_factor(module),
        "special_values": _choice(module, "SPECIAL_VALUES", SPECIAL_VALUES),
        "views": _choice(module, "VIEWS", VIEWS),
        "strides": _switch(module, "STRIDES"),
        "nondeterministic": _switch(module, "NONDETERMINISTIC"),
        "grad": _switch(module, "GRAD"),
    }
    if found["grad"] and not found["has_reference"]:
        raise bad("GRAD = True needs a reference whose gradients are the expected ones: def reference(*inputs)")
    for case in every_case(module):
        reduction(module, case)
    return found


def every_case(module: ModuleType) -> dict[str, dict[str, Any]]:
    """The parameters of each case, hidden ones too, by its name."""
    cases = {**module.CASES, **getattr(module, "HIDDEN_CASES", {})}
    return {name: {key: value for key, value in case.items() if key not in META_FIELDS} for name, case in cases.items()}


def reduction(module: ModuleType, case: str) -> float | None:
    """Length (1 or more) of the sum behind each output element of a case, or None where the task does not say.

    Raises:
        Refused: ``reduction`` can't take the case's parameters, or returns something else.
    """
    function = getattr(module, "reduction", None)
    if function is None:
        return None
    parameters = every_case(module)[case]
    shown = f"reduction({', '.join(f'{key}={value!r}' for key, value in parameters.items())})"[:300]
    try:
        inspect.signature(function).bind(**parameters)
    except TypeError as error:
        raise bad(f"reduction can't take case {case!r}: {error}. It is called as {shown}") from error
    found = function(**parameters)
    if isinstance(found, bool) or not isinstance(found, int | float) or not (1 <= found < math.inf):
        raise bad(
            f"{shown} returned {found!r}; it must return the length of the sum behind each output element, a number "
            "of 1 or more, e.g. def reduction(M, N, K): return K"
        )
    return float(found)


def _choice(module: ModuleType, attribute: str, allowed: tuple[str, ...]) -> list[str]:
    """The names that an attribute lists, in the order of ``allowed``."""
    given = getattr(module, attribute, ())
    form = f"{attribute} = {allowed[:2]!r}"
    if not isinstance(given, list | tuple | set | frozenset) or not all(isinstance(name, str) for name in given):
        raise bad(f"{attribute} must be a tuple of names out of {', '.join(allowed)}, e.g. {form}; it is {given!r}")
    if unknown := sorted(set(given) - set(allowed)):
        raise bad(f"{attribute} names {unknown}; allowed are {', '.join(allowed)}, e.g. {form}")
    return [name for name in allowed if name in given]


def _switch(module: ModuleType, attribute: str) -> bool:
    given = getattr(module, attribute, False)
    if not isinstance(given, bool):
        raise bad(f"{attribute} must be True or False, e.g. {attribute} = True; it is {given!r}")
    return given


def _error_factor(module: ModuleType) -> float | None:
    given = getattr(module, "ERROR_FACTOR", None)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not (1 <= given < math.inf):
        raise bad(
            "ERROR_FACTOR must be a number of 1 or more: how many times the reference's own error a kernel may have, "
            f"e.g. ERROR_FACTOR = 8; it is {given!r}"
        )
    return float(given)


def _cases(module: ModuleType, attribute: str, make_inputs: Any) -> dict[str, Any]:
    cases = getattr(module, attribute, None)
    if not isinstance(cases, dict):
        form = f"{attribute} = {{'train': {{'rows': 4096, 'cols': 1024}}}}"
        raise bad(f"{attribute} must be a dict of named cases, e.g. {form}; it is {type(cases).__name__}")
    found: dict[str, Any] = {}
    for name, case in cases.items():
        if isinstance(name, str) and not (name.isprintable() and 0 < len(name) <= CASE_NAME_LIMIT):
            raise bad(
                f"{attribute} has a case named {name[:CASE_NAME_LIMIT]!r}; names are 1 to 60 printable characters"
            )
        if not isinstance(name, str) or not isinstance(case, dict) or not all(isinstance(key, str) for key in case):
            raise bad(
                f"{attribute}[{name!r}] must be a dict of parameters, e.g. {{'rows': 4096}}; it is {case!r}"[:500]
            )
        weight = case.get("weight", 1.0)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not (0 < weight < math.inf):
            raise bad(f"{attribute}[{name!r}]['weight'] must be a positive number; it is {weight!r}")
        parameters = {key: value for key, value in case.items() if key not in META_FIELDS}
        try:
            inspect.signature(make_inputs).bind(**parameters, device="cpu")
        except TypeError as error:
            raise bad(
                f"make_inputs can't take case {name!r}: {error}. It is called as "
                f"make_inputs({', '.join(f'{key}={value!r}' for key, value in parameters.items())}, device=...)"
            ) from error
        found[name] = {
            "parameters": as_json(parameters),
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
        raise bad(f"TOLERANCE must be a dict by dtype name, e.g. {form}; it is {type(given).__name__}")
    tolerances = {name: dict(value) for name, value in DEFAULT_TOLERANCES.items()}
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(getattr(torch, name, None), torch.dtype):
            raise bad(f"TOLERANCE has the key {name!r}, which is no dtype name; e.g. {form}")
        if not isinstance(value, dict) or not set(value) <= {"rtol", "atol"}:
            raise bad(f"TOLERANCE[{name!r}] must be {{'rtol': ..., 'atol': ...}}; it is {value!r}")
        for part, number in value.items():
            if isinstance(number, bool) or not isinstance(number, int | float) or not (0 <= number < math.inf):
                raise bad(f"TOLERANCE[{name!r}][{part!r}] must be a number of 0 or more; it is {number!r}")
        # By the dtype's own name: torch.half is torch.float16.
        tolerances[_dtype_name(name)] = {
            "rtol": 0.0,
            "atol": 0.0,
            **{part: float(number) for part, number in value.items()},
        }
    return tolerances


def _dtype_name(alias: str) -> str:
    return str(getattr(torch, alias)).removeprefix("torch.")


def bad(message: str) -> Refused:
    """The refusal of a malformed part, with the form that a task has."""
    return Refused("rejected", "task", f"{message}. {FORM}")


def as_json(value: Any) -> Any:
    """A value of a case in what JSON has; anything else as text."""
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    return value if isinstance(value, bool | int | str) or value is None else str(value)
