"""What a search offers when it has ended: the best first, each another file, and nothing that is hardly faster."""

import math

from tests.diagnosis.made_up import H200
from tests.profiling.tuning.facts import launch
from tests.server.conftest import EXAMPLES
from tritonforge.profiling.tuning.search import WORTH_IT, Search
from tritonforge.profiling.tuning.space import Point, infer
from tritonforge.server.optimize.tune_agent import chosen, measured, strategy
from tritonforge.server.tuning.find import offers

PLAIN = (EXAMPLES / "sin" / "candidate.py").read_text()
CONFIGS = "[triton.Config({'BLOCK': 256}, num_warps=2), triton.Config({'BLOCK': 1024}, num_warps=4)]"
LISTED = PLAIN.replace("@triton.jit", f"@triton.autotune(configs={CONFIGS}, key=['n'])\n@triton.jit").replace(
    "BLOCK=block, num_warps=4", ""
)


def searched(text: str, values: dict[Point, dict[str, float]]) -> Search:
    """A search that has measured these, as ratios by case."""
    launched = {"sin_kernel": {"num_warps": 4, "num_stages": 3}}
    cases = list(next(iter(values.values())))
    search = Search(infer(text, launched=launched), dict.fromkeys(cases, 1 / len(cases)), H200)
    search.baseline({case: [launch(code_hash="as it is")] for case in cases})
    for point, ratios in values.items():
        search.compiled(point, {case: [launch(code_hash=str(point))] for case in cases})
        for case, ratio in ratios.items():
            search.measured(case, point, math.log(ratio))
    return search


def test_finalists_come_best_first_and_none_that_is_hardly_faster() -> None:
    barely = math.exp(WORTH_IT * 0.9)
    search = searched(
        PLAIN, {(512, 4): {"a": 1.1}, (2048, 8): {"a": 1.3}, (256, 4): {"a": barely}, (64, 1): {"a": 0.5}}
    )
    found = list(offers(search, PLAIN))
    assert [offer.point for offer in found] == [(2048, 8), (512, 4)]
    assert "block = 2048" in found[0].text
    assert "num_warps=8" in found[0].text
    assert math.exp(found[0].value) > math.exp(found[1].value) > 1
    assert strategy(search, found[1]) == "tune: BLOCK 1024 -> 512 (search: 4 of 45 points measured)"


def test_who_loses_in_a_case_comes_behind_who_loses_in_none() -> None:
    values: dict[Point, dict[str, float]] = {
        (512, 4): {"a": 7.8, "b": 0.83},
        (2048, 8): {"a": 1.3, "b": 1.2},
        (256, 4): {"a": 1.5, "b": 0.995},
    }
    found = [offer.point for offer in offers(searched(PLAIN, values), PLAIN)]
    assert found == [(2048, 8), (256, 4), (512, 4)]


def test_a_list_gets_the_winners_of_single_cases_too() -> None:
    search = searched(LISTED, {(512, 4): {"a": 1.2, "b": 1.2}, (64, 2): {"a": 1.4, "b": 0.7}})
    first, *more = offers(search, LISTED)
    assert first.point == (512, 4)
    assert "'BLOCK': 512" in first.text
    assert "'BLOCK': 64" in first.text
    assert more == []
    assert strategy(search, first).startswith("tune: autotune list with BLOCK=512, num_warps=4 (search: ")
    assert measured(search).startswith("2 of ")


def test_the_same_list_in_another_order_is_no_other_finalist() -> None:
    search = searched(LISTED, {(512, 4): {"a": 1.2, "b": 1.2}, (64, 2): {"a": 1.4, "b": 0.9}})
    assert len(search.choices()) == 2
    assert [offer.point for offer in offers(search, LISTED)] == [(512, 4)]


SIZES = {"a": {"x.numel()": 4096}, "b": {"x.numel()": 1 << 24}}


def test_where_no_point_is_the_best_in_all_cases_a_file_chooses_by_size() -> None:
    values: dict[Point, dict[str, float]] = {
        (2048, 8): {"a": 0.9, "b": 1.4},
        (512, 4): {"a": 1.2, "b": 0.95},
        (256, 4): {"a": 1.1, "b": 1.1},
    }
    search = searched(PLAIN, values)
    first, *more = offers(search, PLAIN, "sin", SIZES)
    assert first.split is not None
    assert (first.point, first.split.below) == ((2048, 8), (512, 4))
    assert math.isclose(first.value, (math.log(1.4) + math.log(1.2)) / 2)
    assert "block = (2048 if x.numel() >= 262144 else 512)" in first.text
    assert "num_warps=(8 if x.numel() >= 262144 else 4)" in first.text
    assert strategy(search, first) == (
        "tune: BLOCK=2048 where x.numel() >= 262144, else 512; num_warps=8 where x.numel() >= 262144, else 4 "
        "(search: 3 of 45 points measured)"
    )
    assert chosen(search, first)["BLOCK"] == "2048 where x.numel() >= 262144, else 512"
    assert chosen(search, more[0]) == {"BLOCK": 256, "num_warps": 4}
    assert more[0].point == (256, 4)


def test_a_file_of_one_point_is_offered_first_where_two_are_hardly_better() -> None:
    values: dict[Point, dict[str, float]] = {(2048, 8): {"a": 1.195, "b": 1.4}, (512, 4): {"a": 1.2, "b": 0.95}}
    assert [offer.split for offer in offers(searched(PLAIN, values), PLAIN, "sin", SIZES)] == [None, None]
