"""Tasks and audits made up for tests; each says only what it is about."""

from typing import Any

from tritonforge.sandbox.facts import Audit, OutputFiniteness
from tritonforge.sandbox.task import Task

FINITE = OutputFiniteness(where="output", elements=1000, nan=0, inf=0, rms=1.0)


def spec(**changed: Any) -> Task:
    fields: dict[str, Any] = {
        "entry": "entry", "title": None, "cases": {}, "hidden_cases": {}, "has_reference": True, "has_work": False,
        "in_place": [], "tolerances": {},
    }  # fmt: skip
    return Task.model_validate({**fields, **changed})


def audit(**changed: Any) -> Audit:
    fields: dict[str, Any] = {
        "nondeterministic": [], "outputs": [FINITE], "impostors": [], "exact": None, "variants": [], "skipped": [],
    }  # fmt: skip
    return Audit.model_validate({**fields, **changed})
