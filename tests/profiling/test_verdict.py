"""What the facts of a call are taken for, and the words that say where to look."""

from typing import Any

import pytest

from tritonforge.profiling import verdict
from tritonforge.profiling.verdict import (
    Fault,
    aliased_of,
    call_faults,
    is_decoy,
    missing_kernel,
    outside,
    repeat_fault,
    value_faults,
)
from tritonforge.sandbox.facts import (
    BrokenMargin,
    CallFacts,
    Cluster,
    DeviceWork,
    Difference,
    Launched,
    OutputAccuracy,
    OutputComparison,
    Verification,
)

RIGHT = OutputComparison(where="output", mismatch=None, dtype="float32", elements=1000, rtol=1e-6, atol=1e-5)
WRONG = RIGHT.model_copy(
    update={"wrong_elements": 250, "max_abs_error": 3.0, "worst_index": [5, 7], "worst_expected": 1.0, "worst_got": 4.0}
)
EXACT = OutputAccuracy(where="output", error=1e-7, reference_error=5e-8, allowed=8e-7, factor=16.0, elements=1000)
OWN = Launched(kernel="mine", symbol="mine_0d1d", own=True, count=1)
FOREIGN = Launched(kernel="theirs", symbol="theirs", own=False, count=2)


def found(**changed: Any) -> Verification:
    fields: dict[str, Any] = {"outputs": [RIGHT], "accuracy": [EXACT], "changed": [], "broken": []}
    return Verification.model_validate({**fields, **changed})


def facts(**changed: Any) -> CallFacts:
    fields: dict[str, Any] = {
        "labels": [], "outputs_at": [(100, 200)], "inputs_at": [(300, 400)], "launched": [OWN], "activities": None,
        "operations": {}, "touched": [True],
    }  # fmt: skip
    return CallFacts.model_validate({**fields, **changed})


def only(faults: list[Fault]) -> Fault:
    (fault,) = faults
    assert fault.message
    assert fault.cause
    assert fault.fix
    return fault


# Values


def test_right_values_have_no_fault():
    assert value_faults(found()) == []


def test_a_wrong_element_is_placed_with_both_values_and_what_was_allowed():
    fault = only(value_faults(found(outputs=[WRONG])))
    assert fault.check == "values"
    assert "output: 250 of 1,000 elements wrong (25 %)" in fault.message
    assert "the worst at [5, 7]: expected 1.0, got 4.0 (allowed 1e-05 + 1e-06 * |expected|)" in fault.message
    assert "NaN" not in fault.message
    assert "output[5, 7]" in fault.fix


CLOSE = WRONG.model_copy(update={"worst_got": 1.00005})


def test_what_even_the_worst_element_misses_by_little_is_taken_for_rounding():
    fault = only(value_faults(found(outputs=[CLOSE], accuracy=[])))
    assert fault.cause.startswith("Rounding")
    assert "reduction(**case)" in fault.fix
    assert "float64" not in fault.message
    far = only(value_faults(found(outputs=[WRONG])))
    assert "Rounding" not in far.cause
    assert "float64" not in far.message


def test_close_values_of_an_output_that_is_accurate_as_a_whole_say_so():
    whole = "; as a whole it is accurate enough (error against float64 1e-07, the reference's 5e-08)"
    assert only(value_faults(found(outputs=[CLOSE]))).message.endswith(whole)
    poor = EXACT.model_copy(update={"error": 1e-3})
    other = EXACT.model_copy(update={"where": "output[1]"})
    for accuracy in ([poor], [other]):
        assert "as a whole" not in only(value_faults(found(outputs=[CLOSE], accuracy=accuracy))).message


@pytest.mark.parametrize(
    "changed",
    [
        {"not_finite_mismatches": 1},
        {"worst_got": "nan"},
        {"worst_expected": 1e-4, "worst_got": 0.0},
        {"dtype": "bool", "worst_got": 0.0, "rtol": 0.0, "atol": 0.0},
    ],
)
def test_no_number_nothing_at_all_or_a_boolean_is_no_rounding(changed: dict[str, Any]):
    assert only(value_faults(found(outputs=[CLOSE.model_copy(update=changed)]))).cause.startswith("A mask")


@pytest.mark.parametrize(("got", "near"), [(2.0, True), (0.0, True), (3.0, False)])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_integers_that_are_off_by_one_are_told_apart(dtype: str, got: float, near: bool):
    exact = {"dtype": dtype, "rtol": 0.0, "atol": 0.0, "worst_got": got}
    fault = only(value_faults(found(outputs=[WRONG.model_copy(update=exact)])))
    assert fault.cause.startswith("Integers") == near
    assert ("TOLERANCE" in fault.fix) == near


@pytest.mark.parametrize(("dtype", "told"), [("int32", True), ("int64", True), ("int8", False), ("float32", False)])
def test_integers_that_may_be_indices_may_hang_on_ties(dtype: str, told: bool):
    fault = only(value_faults(found(outputs=[WRONG.model_copy(update={"dtype": dtype})])))
    assert ("equal elements" in fault.cause, "without ties" in fault.fix) == (told, told)


def test_values_that_are_no_numbers_are_counted_apart():
    odd = WRONG.model_copy(update={"not_finite_mismatches": 3})
    assert "3 of them NaN or Inf on one side" in only(value_faults(found(outputs=[odd]))).message


def test_another_form_comes_before_wrong_values():
    form = OutputComparison(where="output[0]", mismatch="output[0]: expected shape (4,), got (5,)")
    fault = only(value_faults(found(outputs=[WRONG, form])))
    assert (fault.check, fault.message) == ("form", "output[0]: expected shape (4,), got (5,)")


def test_all_that_is_wrong_with_a_call_is_told():
    changed = Difference(where="input x", elements=12)
    broken = BrokenMargin(index=0, side="after", bytes=4, distance=0)
    faults = value_faults(found(outputs=[WRONG], changed=[changed], broken=[broken]))
    assert [fault.check for fault in faults] == ["values", "out_of_bounds", "inputs_changed"]


def test_changed_inputs_are_named():
    changed = [
        Difference(where="input x", elements=1200),
        Difference(where="inputs", mismatch="inputs: 2 went and 1 others came back"),
    ]
    fault = only(value_faults(found(changed=changed)))
    assert fault.check == "inputs_changed"
    assert fault.message == (
        "the call changed its inputs: input x (1,200 elements), inputs: 2 went and 1 others came back"
    )
    assert "IN_PLACE" in fault.fix


def test_right_values_may_be_too_inaccurate_and_the_worst_output_is_told():
    poor = EXACT.model_copy(update={"error": 1e-6})
    poorer = EXACT.model_copy(update={"where": "output[1]", "error": 1e-3, "reference_error": 2.5e-7})
    fault = only(value_faults(found(accuracy=[poor, poorer, EXACT])))
    assert fault.check == "accuracy"
    assert fault.message.startswith("output[1] is less accurate")
    for part in ("0.001", "2.5e-07", "allowed 8e-07", "(16 times)"):
        assert part in fault.message
    assert "ERROR_FACTOR" in fault.fix


def test_the_error_that_is_allowed_is_allowed():
    assert value_faults(found(accuracy=[EXACT.model_copy(update={"error": EXACT.allowed})])) == []


def test_a_zero_error_allowed_divides_nothing():
    poor = EXACT.model_copy(update={"allowed": 0.0})
    assert only(value_faults(found(accuracy=[poor]))).check == "accuracy"


def test_an_error_of_accuracy_is_no_news_where_values_are_wrong():
    assert only(value_faults(found(outputs=[WRONG], accuracy=[EXACT.model_copy(update={"error": 1.0})]))).check == (
        "values"
    )


# Where wrong elements lie


def cluster(size: int, wrong: int, first: int, last: int, step: int | None = None, dim: int = 0) -> Cluster:
    return Cluster(dim=dim, size=size, wrong=wrong, first=first, last=last, step=step)


@pytest.mark.parametrize(
    ("clusters", "words"),
    [
        ([], ""),
        ([cluster(8, 8, 0, 7), cluster(4, 4, 0, 3, dim=1)], ""),
        ([cluster(8, 1, 3, 3)], "they lie in dimension 0 only at 3 of 0..7"),
        ([cluster(100, 3, 4, 6, dim=2)], "they lie in dimension 2 only at 4..6 of 0..99"),
        ([cluster(128, 64, 1, 127, 2)], "they lie in dimension 0 at steps of 2 from 1 to 127"),
        ([cluster(5000, 1500, 2, 4000)], "they lie in dimension 0 at 1,500 of 5,000 places from 2 to 4000"),
        (
            [cluster(781, 13, 768, 780)],
            "they lie in dimension 0 only at 768..780 of 0..780 (the last tile of 256, which is not full: "
            "look at its mask)",
        ),
        (
            [cluster(1000, 1, 999, 999)],
            "they lie in dimension 0 only at 999 of 0..999 (the end: look at the mask and the grid)",
        ),
        # 64 divides the size: the last tile is full.
        (
            [cluster(1024, 64, 960, 1023)],
            "they lie in dimension 0 only at 960..1023 of 0..1023 (the end: look at the mask and the grid)",
        ),
        # All but the first: no edge.
        ([cluster(100, 99, 1, 99)], "they lie in dimension 0 only at 1..99 of 0..99"),
        (
            [cluster(4, 1, 2, 2), cluster(64, 64, 0, 63, dim=1), cluster(9, 2, 0, 1, dim=2)],
            "they lie in dimension 0 only at 2 of 0..3, dimension 2 only at 0..1 of 0..8",
        ),
    ],
)
def test_where_wrong_elements_cluster_is_told(clusters: list[Cluster], words: str):
    assert verdict.where_wrong(clusters) == words
    message = only(value_faults(found(outputs=[WRONG.model_copy(update={"clusters": clusters})]))).message
    assert message.endswith(f"; {words}" if words else "|expected|)")


# Margins


def test_stores_outside_are_told_with_the_tensors_names():
    broken = [
        BrokenMargin(index=1, side="after", bytes=4096, distance=0),
        BrokenMargin(index=0, side="before", bytes=4, distance=1028),
        BrokenMargin(index=7, side="after", bytes=1, distance=0),
        BrokenMargin(index=8, side="after", bytes=1, distance=0),
    ]
    fault = only(value_faults(found(broken=broken)))
    assert fault.check == "out_of_bounds"
    fault = verdict.named(fault, broken, ["input x", "float32 (8,) from torch.empty_like"])
    assert fault.message == (
        "stores outside of tensors: 4,096 bytes after float32 (8,) from torch.empty_like, the nearest "
        "right beside it; 4 bytes before input x, the nearest 1,028 bytes away; 1 bytes after tensor 7, the nearest "
        "right beside it and 1 more"
    )
    assert verdict.named(only(value_faults(found(outputs=[WRONG]))), broken, []).check == "values"


# Places of the outputs


def test_outputs_in_places_of_their_own_have_no_fault():
    assert call_faults(facts(), None, [False], in_place=False) == []
    assert call_faults(facts(), facts(outputs_at=[(200, 300)]), [False], in_place=False) == []


def test_an_output_in_an_input_is_aliased():
    fault = only(call_faults(facts(outputs_at=[(0, 50), (399, 500)]), None, [False, False], in_place=False))
    assert fault.check == "aliased"
    assert fault.message.startswith("output 1 shares memory with an input")
    assert "IN_PLACE" in fault.fix


@pytest.mark.parametrize("place", [(200, 300), (400, 500), (350, 350)], ids=["before", "after", "empty"])
def test_an_output_beside_an_input_is_not_aliased(place: tuple[int, int]):
    assert call_faults(facts(outputs_at=[place]), None, [False], in_place=False) == []


def test_of_many_places_each_is_found():
    # Unordered, overlapping, touching, one inside another, and empty ones.
    inputs = [(900, 1000), (100, 200), (150, 300), (300, 400), (310, 320), (500, 500), (2, 1)]
    for place in [(50, 101), (399, 401), (250, 251), (0, 5000), (999, 2000), (315, 316)]:
        assert call_faults(facts(outputs_at=[place], inputs_at=inputs), None, [False], in_place=False), place
    for place in [(0, 100), (400, 900), (499, 501), (1000, 1001), (0, 3), (150, 150)]:
        assert not call_faults(facts(outputs_at=[place], inputs_at=inputs), None, [False], in_place=False), place


def test_an_output_may_be_aliased_where_the_references_is():
    aliased = facts(outputs_at=[(300, 400), (350, 360)])
    assert call_faults(aliased, None, [True, True], in_place=False) == []
    assert only(call_faults(aliased, None, [True], in_place=False)).message.startswith("output 1 shares")


def test_which_outputs_lie_in_inputs_is_seen_from_the_places_of_a_call():
    assert aliased_of(facts(outputs_at=[(0, 50), (399, 500), (350, 360), (400, 500)])) == [False, True, True, False]
    assert aliased_of(facts(outputs_at=[])) == []


def test_an_output_in_the_place_of_an_earlier_one_is_reused_memory():
    fault = only(call_faults(facts(), facts(outputs_at=[(0, 101)]), [False], in_place=False))
    assert fault.check == "reused_memory"
    assert fault.message.startswith("output 0 lies in the memory of an output that an earlier call returned")


def test_an_aliased_output_lies_where_its_input_lies_also_the_next_time():
    view = facts(outputs_at=[(300, 400)])
    assert call_faults(view, view, [True], in_place=False) == []


def test_arguments_that_are_outputs_lie_where_they_lie():
    view = facts(outputs_at=[(300, 400)])
    assert call_faults(view, view, [False], in_place=True) == []


# A second call


def test_equal_results_are_no_fault():
    assert repeat_fault([]) is None


def test_results_that_differ_are_told_with_the_largest_difference():
    differing = [Difference(where="output[0]", elements=3), Difference(where="output[1]", elements=1234,
                 max_abs_difference=0.25)]  # fmt: skip
    fault = repeat_fault(differing)
    assert fault is not None
    assert fault.check == "nondeterministic"
    assert fault.message == "two calls on the same inputs differ: output[1], 1,234 elements, by at most 0.25"
    assert "NONDETERMINISTIC" in fault.fix


def test_results_of_another_form_differ_most():
    differing = [Difference(where="output[0]", elements=3), Difference(where="output", mismatch="output: a list")]
    fault = repeat_fault(differing)
    assert fault is not None
    assert fault.message == "two calls on the same inputs differ: output: a list"


# Whose work it is


def work(name: str, us: float) -> DeviceWork:
    return DeviceWork(name=name, us=us, count=1)


def test_a_call_of_its_own_kernel_misses_none():
    assert missing_kernel(facts()) is None
    assert missing_kernel(facts(launched=[FOREIGN, OWN], activities=[work("mine_0d1d", 3.0)])) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"launched": []}, "the entry launched no Triton kernel"),
        ({"launched": [FOREIGN]}, "only kernels of installed packages (theirs)"),
        ({"activities": [work("gemm", 5.0)]}, "none of the entry's kernels (mine_0d1d) ran on the device"),
        ({"activities": []}, "none of the entry's kernels (mine_0d1d) ran on the device"),
    ],
)
def test_a_call_without_a_kernel_of_its_own_is_told_as_such(changed: dict[str, Any], words: str):
    message = missing_kernel(facts(**changed))
    assert message is not None
    assert words in message


def test_work_outside_of_the_entrys_kernels_is_the_rest_of_the_devices_time():
    done = [work("copy", 1.0), work("mine_0d1d", 6.0), work("gemm", 3.0)]
    beside = outside(facts(activities=done, operations={"aten.mm": 1}))
    assert beside.pct == pytest.approx(40.0)
    assert beside.names == ["gemm", "copy"]


def test_a_kernel_with_a_long_name_is_known_in_the_records():
    long = OWN.model_copy(update={"symbol": "k" * 300})
    beside = outside(facts(launched=[long], activities=[work("k" * 200, 3.0)]))
    assert (beside.pct, beside.us, beside.names) == (0.0, 0.0, [])


def test_a_kernel_of_a_package_is_outside():
    beside = outside(facts(launched=[OWN, FOREIGN], activities=[work("theirs", 3.0), work("mine_0d1d", 1.0)]))
    assert (beside.pct, beside.names) == (pytest.approx(75.0), ["theirs"])


def test_without_a_recording_operations_are_told_the_most_frequent_first():
    operations = {f"aten.op{count}": count for count in range(1, 8)}
    beside = outside(facts(operations=operations))
    assert (beside.pct, beside.us) == (None, 0.0)
    assert beside.names == [f"aten.op{count}" for count in (7, 6, 5, 4, 3)]


def test_a_device_that_did_nothing_has_no_share():
    beside = outside(facts(activities=[]))
    assert (beside.pct, beside.us, beside.names) == (None, 0.0, [])


@pytest.mark.parametrize(
    ("other_us", "touched", "decoy"),
    [
        (20.0, [True], False),
        (50.0, [True], True),
        (20.0, [False], True),
        (20.0, [False, True], False),
        (5.0, [False], False),
    ],
)
def test_other_work_is_a_decoys_where_it_is_long_or_the_kernel_was_given_no_result(
    other_us: float, touched: list[bool], decoy: bool
):
    done = [work("gemm", other_us), work("mine_0d1d", 1.0)]
    assert is_decoy(outside(facts(activities=done, touched=touched))) is decoy
