"""What today's rules say of profiles that were recorded on a GPU, with the code compiled here and no GPU.

    python tests/benchmarks/diagnosis_again.py RECORDED [--names NAME ...]

RECORDED is the diagnosis.json of tests/benchmarks/diagnosis_on_gpu.py. A defect that was planted anew since is to be
left out by `--names`, whose entries are beginnings of names: its profile is another kernel's.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.diagnosis.compiled import compile_defects
from tests.diagnosis.conftest import read
from tests.diagnosis.defect import names, read_defect
from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.facts import Facts
from tritonforge.profiling.diagnosis.floor import Floor
from tritonforge.profiling.diagnosis.model import Diagnosis, Gain
from tritonforge.profiling.ncu.cause import Cause
from tritonforge.profiling.ncu.hotspots import Hotspot
from tritonforge.profiling.ncu.model import LaunchProfile

HEADER = ("defect", "id", "saved %", "told then %", "told now %", "at most now %", "top then", "top now", "why now")


def again(facts: Facts, recorded: dict[str, Any]) -> Facts:
    """The same launch, with what was measured of it."""
    profile, floor = recorded["profile"], recorded["floor"]
    return replace(
        facts,
        profile=None if profile is None else LaunchProfile.model_validate(profile),
        causes=[Cause.model_validate(each) for each in recorded["causes"]],
        hotspots=[Hotspot.model_validate(each) for each in recorded["hotspots"]],
        floor=None if floor is None else Floor(**floor),
    )


def row(name: str, kept: dict[str, Any], told: Diagnosis) -> list[str]:
    """Then and now."""
    then = kept["row"]
    own = next((each for each in told.findings + told.hypotheses if each.id == kept["id"]), None)
    gain = Gain(at_most_pct=None, why="not named") if own is None else own.gain
    expected, bound = ("" if each is None else f"{each:.1f}" for each in (gain.expected_pct, gain.at_most_pct))
    first = next((each.id for each in told.findings + told.hypotheses), "done" if told.done else "none")
    return [name, kept["id"], then["gain"], then["expected"], expected, bound, then["top"], first, gain.why]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", type=Path)
    parser.add_argument("--names", nargs="+", default=[""], help="beginnings of names")
    given = parser.parse_args()
    recorded: dict[str, dict[str, Any]] = json.loads(given.recorded.read_text())
    chosen = [name for name in names() if name in recorded and any(name.startswith(start) for start in given.names)]
    print(f"| {' | '.join(HEADER)} |\n|{' --- |' * len(HEADER)}")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        compile_defects([read_defect(name) for name in chosen], (), out)
        for name in chosen:
            found: dict[str, Any] = recorded[name].get("facts") or {}
            for launch in found.get("launches", [])[:1]:
                facts = again(read(read_defect(name).text, out / f"{name}_slow.json"), launch["facts"])
                cells = row(name, recorded[name], diagnose(facts))
                print(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |", flush=True)


if __name__ == "__main__":
    main()
