"""A planted fault is the first finding, on its line; a kernel without it has none."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.profiling.compiler.signatures.shown import TRITON
from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.facts import Facts
from tritonforge.profiling.diagnosis.rules import RULES

from . import planted_grids, planted_products, planted_values
from .conftest import kernel_file
from .planted import CLEAN, PLANTED, Planted, first, line_of

pytestmark = [
    pytest.mark.xdist_group("diagnosis"),
    pytest.mark.skipif(TRITON != (3, 7), reason="what is planted was chosen for the compiler of Triton 3.7"),
]
Show = Callable[[str, str], Facts]
WEIGHTY = 40
"""Below it, findings matter where the SM is busy only."""
UNSURE = ("R7",)
"""What costs time only if a profile shows it."""
BY_ID = {rule.id: rule for rule in RULES}


def named(planted: Planted) -> str:
    return f"{planted.id}-{planted.faulty}"


@pytest.mark.parametrize("planted", PLANTED, ids=named)
def test_a_planted_fault_is_on_top_and_on_its_line(launches: Show, planted: Planted) -> None:
    told = diagnose(launches(planted.file, planted.faulty))
    top = first(told)
    assert top.id == planted.id
    assert top.line is not None
    assert abs(top.line - line_of(kernel_file(planted.file).read_text(), planted)) <= 1
    assert top.level == planted.deepest
    assert top.excerpt
    rule = BY_ID[planted.id]
    assert (top in told.findings) == (not rule.if_busy and not rule.demoted and planted.id not in UNSURE)
    assert (told.done is None) == (top in told.findings)


@pytest.mark.parametrize("planted", PLANTED, ids=named)
def test_no_other_fault_of_weight_is_told_beside_it(launches: Show, planted: Planted) -> None:
    told = diagnose(launches(planted.file, planted.faulty))
    beside = {finding.id for finding in told.findings if BY_ID[finding.id].weight >= WEIGHTY} - {planted.id}
    assert beside == set()


@pytest.mark.parametrize("planted", [each for each in PLANTED if each.twin], ids=named)
def test_the_twin_without_the_fault_has_no_finding_of_weight(launches: Show, planted: Planted) -> None:
    assert planted.twin is not None
    told = diagnose(launches(planted.file, planted.twin))
    assert planted.id not in [finding.id for finding in told.findings + told.hypotheses]
    assert [finding.id for finding in told.findings if BY_ID[finding.id].weight >= WEIGHTY] == []


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, names in CLEAN.items() for name in names])
def test_a_kernel_without_a_fault_is_said_to_be_done(launches: Show, file: str, name: str) -> None:
    told = diagnose(launches(file, name))
    assert told.findings == []
    assert told.done is not None
    assert "only a profile tells" in told.done


@pytest.mark.parametrize("planted", PLANTED, ids=named)
def test_a_fault_is_not_told_without_what_shows_it(launches: Show, planted: Planted) -> None:
    facts = launches(planted.file, planted.faulty)
    for need in BY_ID[planted.id].needs:
        withheld = {"source": "source", "code": "launch", "lines": "lines", "remarks": "remarks"}[need]
        told = diagnose(replace(facts, **{withheld: None}))  # pyright: ignore[reportArgumentType]  all of them may be None
        assert planted.id not in [finding.id for finding in told.findings + told.hypotheses], need
        assert planted.id in told.not_looked_for


@pytest.mark.parametrize("planted", [each for each in PLANTED if each.deepest == 4], ids=named)
def test_the_deepest_level_quotes_the_compiler_or_its_condition(launches: Show, planted: Planted) -> None:
    top = first(diagnose(launches(planted.file, planted.faulty)))
    deepest = [each.text for each in top.evidence if each.level == 4]
    assert any(text.startswith(("compiler", "ptxas", "condition of the pass")) for text in deepest)


def test_every_fault_that_is_planted_is_in_the_catalogue_and_most_rules_are_planted() -> None:
    planted = {each.id for each in PLANTED}
    assert planted <= BY_ID.keys()
    # The rest has tests of its own: made-up facts, or kernels of other tests.
    own = planted_products.OWN_TESTS | planted_values.OWN_TESTS | planted_grids.OWN_TESTS
    assert BY_ID.keys() - planted == own | {"P2", "P8", "R1", "G1", "G2", "H1", "H2", "H3", "U16"}


def test_a_load_in_a_helper_is_told_on_its_own_line_without_a_guess_at_the_reason(launches: Show) -> None:
    told = diagnose(launches("options", "helped"))
    assert [finding.id for finding in told.findings] in ([], ["V13"])
