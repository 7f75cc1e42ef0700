"""doctor: what works on this machine, and what to do about the rest."""

import json
import sys

from .. import __version__
from .machine import Probe, inspect
from .profiling_probe import probe_counters
from .services import Services
from .settings import Settings

MARKS = {"ok": "ok     ", "limited": "limited", "missing": "MISSING"}


async def doctor(settings: Settings, as_json: bool, *, probe: Probe = probe_counters) -> int:
    """Print the checks; 0 when the main job (compile and check, at least on the CPU) can run, else 1.

    Args:
        settings: of the server that would be started.
        as_json: one JSON object instead of lines.
        probe: tries the GPU's counters.
    """
    async with Services(settings) as services:
        checks = await inspect(services, probe=probe)
    able = all(check.status == "ok" for check in checks if check.required)
    if as_json:
        report = {"version": __version__, "able": able, "checks": [check.model_dump(mode="json") for check in checks]}
        print(json.dumps(report, indent=2))
        return 0 if able else 1
    lines = [f"tritonforge-mcp {__version__}, server on Python {sys.version.split()[0]}"]
    for check in checks:
        lines.append(f"{MARKS[check.status]}  {check.name}: {check.detail}")
        if check.remedy is not None:
            lines.append(f"         -> {check.remedy}")
    lines.append("The main job can run here." if able else "The main job can't run here: mend what is MISSING.")
    print("\n".join(lines))
    return 0 if able else 1
