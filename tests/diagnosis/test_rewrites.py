"""What a finding's diff makes of a kernel compiles, and changes the signature as was predicted."""

from collections.abc import Callable

import pytest

from tests.profiling.compiler.signatures.shown import TRITON
from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.facts import Facts, value

from . import planted_products, planted_values
from .applied import applied
from .conftest import compile_edited, kernel_file, read
from .planted import PLANTED, REWRITTEN, Planted, first

pytestmark = [
    pytest.mark.xdist_group("diagnosis"),
    pytest.mark.skipif(TRITON != (3, 7), reason="what is planted was chosen for the compiler of Triton 3.7"),
]


EDITS = (*REWRITTEN, *planted_products.REWRITTEN, *planted_values.REWRITTEN)


@pytest.fixture(scope="module")
def after(launches: Callable[[str, str], Facts], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Facts]:
    """Each launch after its edit, by name; all are compiled together."""
    texts: dict[str, str] = {}
    for file, name, _ in EDITS:
        diff = first(diagnose(launches(file, name))).rewrite.diff
        if diff is not None:
            texts[name] = applied(kernel_file(file).read_text(), diff)
    out = tmp_path_factory.mktemp("edited")
    compile_edited(texts, out)
    return {name: read(text, out / f"{name}.json") for name, text in texts.items()}


@pytest.mark.parametrize(("file", "name", "id"), EDITS, ids=[f"{id}-{name}" for _, name, id in EDITS])
def test_an_edit_does_what_it_was_said_to(
    launches: Callable[[str, str], Facts], after: dict[str, Facts], file: str, name: str, id: str
) -> None:
    finding = first(diagnose(launches(file, name)))
    assert finding.id == id
    assert finding.rewrite.diff is not None, finding.rewrite.no_diff
    assert finding.predicted
    for prediction in finding.predicted:
        assert prediction.holds(value(prediction.fact, after[name])), prediction
    left = diagnose(after[name])
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
