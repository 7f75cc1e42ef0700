"""Launches out of reports that ncu 2025.3.1 took on an H200, as its Python module read them; values untouched.

`NAME.json` holds a kernel's name, its metrics as name -> [value, unit, number of instances] and the rules' findings
as `rule_results_as_dicts` gave them, without tables. `sections` were taken with sections, `sampled` with few and
SourceCounters, the others with bare metrics. Kept are the metrics of a profile and those by instruction.
"""

import json
from pathlib import Path
from typing import Any

from tritonforge.sandbox.profile_facts import ReportedLaunch, ReportedMetric

RECORDINGS = Path(__file__).parents[2] / "recordings" / "ncu"


def recorded(name: str) -> ReportedLaunch:
    found: dict[str, Any] = json.loads((RECORDINGS / f"{name}.json").read_text())
    metrics = {name: ReportedMetric(value=value, unit=unit) for name, (value, unit, _) in found["metrics"].items()}
    return ReportedLaunch(kernel=found["kernel"], metrics=metrics, rules=[], files=[])


def without(launch: ReportedLaunch, *names: str) -> ReportedLaunch:
    kept = {name: metric for name, metric in launch.metrics.items() if name not in names}
    return launch.model_copy(update={"metrics": kept})


def changed(launch: ReportedLaunch, values: dict[str, float | str], unit: str | None = None) -> ReportedLaunch:
    """The launch with other values, in the unit that each metric has already unless another is given."""
    new = {
        name: ReportedMetric(
            value=value, unit=unit if unit is not None else launch.metrics[name].unit if name in launch.metrics else ""
        )
        for name, value in values.items()
    }
    return launch.model_copy(update={"metrics": launch.metrics | new})
