"""What a search knows after some measurements: champions, one choice for all cases, what mattered; and the check of
files whose knobs were exposed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.diagnosis.made_up import H200
from tests.profiling.tuning.facts import dot, launch
from tests.profiling.tuning.landscapes import knob, space_of
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.tuning.importance import effects
from tritonforge.profiling.tuning.knobs import Listing
from tritonforge.profiling.tuning.origin import Slot
from tritonforge.profiling.tuning.parametrized import parametrized
from tritonforge.profiling.tuning.search import REFUSED_OFTEN, Search
from tritonforge.profiling.tuning.space import Point, Space
from tritonforge.sandbox.outcome import Kind, Problem

SPACE = space_of(knob("A", 1, 1, 2, 4), knob("B", 1, 1, 2))
CASES = ("wide", "tall")


def known(*points: Point, cases: Sequence[str] = CASES, most: int | None = None) -> Search:
    """A search whose points are compiled."""
    search = Search(SPACE, dict.fromkeys(cases, 1 / len(cases)), H200, most)
    search.baseline(facts(SPACE.present, cases))
    for point in points:
        search.compiled(point, facts(point, cases))
    return search


def facts(point: Point, cases: Sequence[str] = CASES, **more: Any) -> Mapping[str, Sequence[LaunchFacts]]:
    return {case: [launch(code_hash=str(point), **more)] for case in cases}


def test_the_choice_for_all_cases_is_the_one_with_the_best_mean() -> None:
    search = known((2, 1), (4, 1), (2, 2))
    for point, wide, tall in [((2, 1), 0.5, -0.1), ((4, 1), 0.3, 0.3), ((2, 2), 0.0, 0.4)]:
        search.measured("wide", point, wide)
        search.measured("tall", point, tall)
    assert [choice.point for choice in search.choices()] == [(4, 1), (2, 1), (2, 2), (1, 1)]
    assert search.choices()[0].value == pytest.approx(0.3)
    assert {case: search.champion(case).point for case in CASES} == {"wide": (2, 1), "tall": (2, 2)}


def test_a_point_that_failed_in_one_case_is_no_choice_for_all() -> None:
    search = known((2, 1))
    search.measured("wide", (2, 1), 0.5)
    search.failed("tall", (2, 1), Kind.RUNTIME_ERROR)
    assert [choice.point for choice in search.choices()] == [(1, 1)]


def test_towards_the_end_only_the_best_are_completed() -> None:
    search = known((2, 1), (4, 1), (2, 2))
    search.measured("wide", (2, 1), 0.8)
    search.measured("wide", (4, 1), -0.8)
    search.filling = True
    found = search.next()
    assert found is not None
    assert (found.case, found.point) == ("tall", (2, 1))


def test_what_is_ahead_in_a_case_is_looked_at_in_the_others_at_once() -> None:
    search = known((2, 1), (4, 1), (2, 2))
    search.measured("wide", (2, 1), 0.3)
    found = search.next()
    assert found is not None
    assert (found.case, found.point) == ("tall", (2, 1))


def test_what_loses_in_a_case_is_no_longer_looked_at_however_far_ahead_it_may_be_in_others() -> None:
    search = known((2, 1), (4, 1), (2, 2))
    search.measured("tall", (2, 1), -0.05)
    search.measured("wide", (4, 1), 0.2)
    chosen = [search.next() for _ in range(5)]
    # All that is left otherwise: (4, 1) in the other case, (2, 2) in both; and at the very last (2, 1).
    assert [(each.case, each.point) for each in chosen[:1] if each] == [("tall", (4, 1))]
    *_, last, none = chosen
    assert none is None
    assert last is not None
    assert (last.point, last.gain) == ((2, 1), 0)


def test_of_an_autotuners_list_each_case_has_its_own_best() -> None:
    listing = Listing("kernel", Slot(1, 0, 1, 1), ("A", "B"), ({"A": 1, "B": 1},))
    search = Search(Space(SPACE.knobs, (listing,), {}), dict.fromkeys(CASES, 0.5), H200)
    for point in ((1, 1), (2, 1), (4, 1)):
        search.compiled(point, facts(point))
    for case, value in (("wide", -0.3), ("tall", -0.3)):
        search.measured(case, (1, 1), value)
    search.measured("wide", (2, 1), 0.5)
    search.measured("tall", (2, 1), -0.5)
    # It loses in one case and is the best of the other all the same.
    assert search.champion("wide").point == (2, 1)
    found = search.next()
    assert found is not None
    assert (found.case, found.point) == ("tall", (4, 1))


def test_a_value_that_the_file_refuses_again_and_again_is_not_compiled_any_more() -> None:
    search = Search(space_of(knob("A", 1, 1, 2, 4, 8), knob("B", 1, 1, 2, 4, 8)), {"wide": 1.0}, H200)
    search.baseline(facts((1, 1), ["wide"]))
    problem = Problem(stage="capture", message="AssertionError")
    tried = 0
    while points := search.to_compile(1):
        (point,) = points
        if point[0] == 8:
            search.refused(point, Kind.REJECTED, problem)
            tried += 1
        else:
            search.compiled(point, facts(point, ["wide"]))
    assert tried == REFUSED_OFTEN
    assert search.compiled_count == 12


def test_the_same_code_counts_for_all_points_that_compile_to_it() -> None:
    search = known((2, 1))
    search.compiled((2, 2), facts((2, 1)))
    search.measured("wide", (2, 1), 0.2)
    assert search.value("wide", (2, 2)) == 0.2
    assert search.value("tall", (2, 2)) is None
    assert search.same_code() == 1
    assert (2, 2) not in search.candidates()["tall"]


def test_points_are_ruled_out_against_the_best_compiled_later() -> None:
    search = Search(SPACE, {"wide": 1.0}, H200)
    search.baseline(facts((1, 1), ["wide"], dots=[dot()], mma="mma"))
    search.compiled((2, 1), facts((2, 1), ["wide"], dots=[dot()], mma="mma"))
    assert search.candidates() == {"wide": [(2, 1)]}
    search.compiled((4, 1), facts((4, 1), ["wide"], dots=[dot()], mma="wgmma"))
    assert search.candidates() == {"wide": [(4, 1)]}
    assert search.pruned[2, 1].reason == "tensor cores lost"
    # The file as it is is no variant, whatever it lacks.
    assert (1, 1) not in search.pruned


def test_evaluations_count_what_is_underway() -> None:
    search = known((2, 1), (4, 1), cases=["wide"], most=1)
    assert search.next() is not None
    assert search.next() is None


def test_it_is_spent_when_nothing_better_is_expected() -> None:
    space = space_of(knob("A", 1, *(1 << n for n in range(12))))
    search = Search(space, {"wide": 1.0}, H200)
    search.baseline(facts((1,), ["wide"]))
    for value in space.knobs[0].values[1:]:
        search.compiled((value,), facts((value,), ["wide"]))
    count = 0
    while (found := search.next()) is not None:
        count += 1
        search.measured("wide", found.point, -0.3 * math.log2(int(found.point[0] or 1)))
    assert search.is_spent
    assert 8 <= count < 11


def test_what_mattered_is_told_from_measurements_alone() -> None:
    search = known((2, 1), (4, 1), (4, 2), cases=["wide"])
    for point, value in [((2, 1), 0.1), ((4, 1), 0.3), ((4, 2), 0.302)]:
        search.measured("wide", point, value)
    a, b = effects(search, (4, 2))
    assert (a.knob, a.best, a.matters) == ("A", 4, True)
    assert a.lost_pct == {"4": 0.0, "2": pytest.approx(22.4, abs=0.1), "1": pytest.approx(35.3, abs=0.1)}
    assert (b.knob, b.matters, b.lost_pct) == ("B", False, {"2": 0.0, "1": pytest.approx(0.2, abs=0.01)})


def test_a_knob_of_which_one_value_was_measured_is_not_judged() -> None:
    search = known(cases=["wide"])
    assert [effect.matters for effect in effects(search, (1, 1))] == [None, None]


def test_what_is_refused_is_counted_with_its_reason() -> None:
    search = known()
    search.refused((2, 1), Kind.LAUNCH_ERROR, Problem(stage="launch", message="out of resource: shared memory"))
    assert search.pruned[2, 1].reason == "shared memory"


HIDDEN = """\
import triton
import triton.language as tl

@triton.jit
def kernel(x):
    tl.store(x + tl.arange(0, 64), 1.0)

def entry(x):
    kernel[(4,)](x, num_warps=4)
"""
EXPOSED = (
    HIDDEN.replace("(x):\n    tl", "(x, BLOCK: tl.constexpr):\n    tl")
    .replace("0, 64", "0, BLOCK")
    .replace("(x, num", "(x, BLOCK=64, num")
)


def test_an_exposed_knob_at_the_same_code_is_what_is_wanted() -> None:
    found = parametrized(HIDDEN, EXPOSED, facts((1,)), facts((1,)))
    assert (found.ok, found.exposed, found.differing) == (True, ["BLOCK"], [])
    assert found.knobs == ["BLOCK", "num_warps"]


@pytest.mark.parametrize(
    ("after", "more", "differs"),
    [
        (facts((2,)), {}, "code"),
        (facts((1,), grid=(8, 1, 1)), {}, "grid"),
        ({"wide": []}, {}, "launches"),
    ],
)
def test_other_code_or_another_grid_is_told(after: Any, more: Any, differs: str) -> None:
    found = parametrized(HIDDEN, EXPOSED, facts((1,)), after)
    assert (found.ok, found.same_code) == (False, False)
    assert differs in found.differing[0]


@pytest.mark.parametrize(
    ("after", "problem"),
    [(HIDDEN, "nothing that the old file did not"), ("def (", "can't be parsed"), ("x = 1\n", "no integer or boolean")],
)
def test_a_file_that_exposes_nothing_says_why(after: str, problem: str) -> None:
    found = parametrized(HIDDEN, after, facts((1,)), facts((1,)))
    assert not found.ok
    assert found.problem is not None
    assert problem in found.problem
