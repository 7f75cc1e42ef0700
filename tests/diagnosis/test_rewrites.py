"""What a finding's diff makes of a kernel compiles, and changes the signature as was predicted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.profiling.compiler.signatures.shown import TRITON
from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.facts import Facts, value

from .applied import applied
from .conftest import compile_some, kernel_file, read
from .planted import PLANTED, REWRITTEN, Planted, first

pytestmark = [
    pytest.mark.xdist_group("diagnosis"),
    pytest.mark.skipif(TRITON != (3, 7), reason="what is planted was chosen for the compiler of Triton 3.7"),
]


@pytest.mark.parametrize(("file", "name", "id"), REWRITTEN, ids=[f"{id}-{name}" for _, name, id in REWRITTEN])
def test_an_edit_does_what_it_was_said_to(
    launches: Callable[[str, str], Facts], tmp_path: Path, file: str, name: str, id: str
) -> None:
    finding = first(diagnose(launches(file, name)))
    assert finding.id == id
    assert finding.rewrite.diff is not None, finding.rewrite.no_diff
    text = applied(kernel_file(file).read_text(), finding.rewrite.diff)
    edited = tmp_path / f"{file}.py"
    edited.write_text(text)
    compile_some(edited, [name], tmp_path / "out")
    after = read(text, tmp_path / "out" / f"{name}.json")
    assert finding.predicted
    for prediction in finding.predicted:
        assert prediction.holds(value(prediction.fact, after)), prediction
    left = diagnose(after)
    assert id not in [each.id for each in left.findings + left.hypotheses]


@pytest.mark.parametrize(
    "planted", [each for each in PLANTED if each.twin], ids=lambda each: f"{each.id}-{each.faulty}"
)
def test_what_is_predicted_is_not_so_yet(launches: Callable[[str, str], Facts], planted: Planted) -> None:
    facts = launches(planted.file, planted.faulty)
    finding = first(diagnose(facts))
    for prediction in finding.predicted:
        assert value(prediction.fact, facts) == prediction.now
        assert prediction.holds(prediction.now) is not True
    assert bool(finding.rewrite.diff) != bool(finding.rewrite.no_diff)
    assert "->" in finding.rewrite.example
