"""The structural defences, each with a switch: with the right ones off, a cheat must pass, or nothing proves them."""

import functools
import secrets
from collections.abc import Callable
from typing import Any

import pytest

from tritonforge.profiling import correctness, verdict
from tritonforge.profiling.correctness import Plan
from tritonforge.profiling.verdict import Fault
from tritonforge.sandbox.facts import Launched, Verification
from tritonforge.sandbox.replies import Values
from tritonforge.sandbox.workers import Call, KernelWorker
from tritonforge.server import audits
from tritonforge.server.tools import run_correctness

Patch = pytest.MonkeyPatch


def switch_off(names: tuple[str, ...], patch: pytest.MonkeyPatch) -> None:
    """Take these defences away from `run_correctness`."""
    plan: dict[str, Any] = {}
    for name in names:
        if name in PLANS:
            plan.update(PLANS[name])
        else:
            SWITCHES[name](patch)
    if plan:
        patch.setattr(run_correctness, "Plan", functools.partial(_changed, plan))


def _changed(plan: dict[str, Any], **given: Any) -> Plan:
    return Plan(**{**given, **plan})


PLANS: dict[str, dict[str, Any]] = {
    "only random inputs": {"structured": False},
    "no repeats": {"repeats": 0},
    "no third seed": {"seeds": 2},
}
"""Switches of the plan."""


def _new_addresses(patch: Patch) -> None:
    original = KernelWorker.set_inputs

    async def set_inputs(worker: KernelWorker, values: Values, *, offset: int = 0, reuse: bool = False) -> None:
        await original(worker, values, offset=offset, reuse=False)

    patch.setattr(KernelWorker, "set_inputs", set_inputs)


def _always_watched(patch: Patch) -> None:
    original = KernelWorker.call
    last: list[bytes] = []

    async def call(worker: KernelWorker, key: bytes | None = None, *, upstream: Values | None = None) -> Call:
        last[:] = [key] if key is not None else last
        return await original(worker, last[0] if last else None, upstream=upstream)

    patch.setattr(KernelWorker, "call", call)


def _places_not_compared(patch: Patch) -> None:
    def call_faults(*arguments: Any) -> list[Fault]:
        return []

    patch.setattr(correctness, "call_faults", call_faults)


def _no_audit(patch: Patch) -> None:
    def require_sound(*arguments: Any) -> None:
        return None

    patch.setattr(audits, "require_sound", require_sound)


def _judged_once(patch: Patch) -> None:
    async def nothing(*arguments: Any) -> list[Fault]:
        return []

    patch.setattr("tritonforge.profiling.correctness._CaseCheck._judge_again", nothing)


def _without(field: str) -> Callable[[Patch], None]:
    """A part of what the task's worker found is not looked at."""

    def switch(patch: Patch) -> None:
        original = correctness.value_faults

        def value_faults(found: Verification) -> list[Fault]:
            return original(found.model_copy(update={field: []}))

        patch.setattr(correctness, "value_faults", value_faults)

    return switch


def _granted(patch: Patch) -> None:
    """Every call is taken for one of a kernel of the file."""
    original = KernelWorker.call
    launch = Launched(kernel="double_kernel", symbol="double_kernel", own=True, count=1)

    async def call(worker: KernelWorker, *arguments: Any, **named: Any) -> Call:
        found = await original(worker, *arguments, **named)
        facts = {"launched": [launch], "activities": None}
        return found._replace(facts=found.facts.model_copy(update=facts))

    patch.setattr(KernelWorker, "call", call)


SWITCHES: dict[str, Callable[[Patch], None]] = {
    "same seed": lambda patch: patch.setattr(secrets, "randbelow", lambda limit: 42),  # pyright: ignore
    "new addresses": _new_addresses,
    "places not compared": _places_not_compared,
    "calls judged once": _judged_once,
    "always watched": _always_watched,
    "inputs not compared": _without("changed"),
    "margins not compared": _without("broken"),
    "no accuracy": _without("accuracy"),
    "no audit": _no_audit,
    "no share": lambda patch: patch.setattr(verdict, "DECOY_PCT", 1000.0),
    "launches taken for granted": _granted,
}
