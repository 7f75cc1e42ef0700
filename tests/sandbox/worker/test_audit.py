# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""What is found out about a task before it judges: steadiness, impostors, variants of inputs."""

import itertools
import types

import pytest
import torch


def make_inputs(rows, device):
    return (torch.randn(rows, 8),)


def softmax(x):
    return torch.softmax(x.float(), -1).to(x.dtype)


@pytest.fixture
def loaded(task):
    def run(**parts):
        sound = {"ENTRY": "f", "CASES": {"train": {"rows": 16}}, "make_inputs": make_inputs, "reference": softmax}
        return task.Task(types.SimpleNamespace(__doc__=None, **{**sound, **parts}), "cpu")

    return run


@pytest.fixture
def audited(loaded):
    return lambda **parts: loaded(**parts).audit("train", 3)


def names(found, part="variants"):
    return [variant["name"] for variant in found[part]]


def reasons(found):
    return {variant["name"]: variant["reason"] for variant in found["skipped"]}


def test_a_sound_task_bears_every_variant(audited):
    found = audited()
    assert found.pop("outputs")[0]["elements"] == 128
    assert found == {
        "nondeterministic": [], "impostors": [], "exact": None, "skipped": [],
        "variants": [
            {"name": name, "scale": scale, "slacks": {}}
            for name, scale in {
                "zeros": None, "ones": None, "ramp": None, "shifted": None, "large": 256.0, "tiny": 2.0**-40,
                "negative_zero": None, "denormals": None,
            }.items()
        ],
    }  # fmt: skip


def test_nothing_is_kept_of_what_was_looked_into(loaded):
    task = loaded()
    task.audit("train", 3)
    assert (task.inputs, task.expected, task.exact) == (None, None, None)


def test_the_seed_decides_on_the_inputs(loaded, audited):
    def reference(x):
        seen.append(x.clone())
        return x

    seen = []
    task = loaded(reference=reference)
    task.audit("train", 3)
    (made,) = task.make_inputs("train", 3)
    assert torch.equal(seen[0], made)
    assert torch.equal(seen[1], made)


def test_inputs_are_made_once(loaded):
    calls = itertools.count()

    def counted(rows, device):
        next(calls)
        return make_inputs(rows, device)

    loaded(make_inputs=counted).audit("train", 3)
    assert next(calls) == 1


def test_a_reference_that_returns_other_bits_each_time_is_found(audited):
    turns = itertools.count()
    found = audited(reference=lambda x: (x, x + next(turns)))
    assert [(record["where"], record["elements"]) for record in found["nondeterministic"]] == [("output[1]", 128)]
    (record,) = audited(reference=lambda x: x.new_zeros(next(turns)))["nondeterministic"]
    assert record["where"] == "output"
    assert "shape" in record["mismatch"]


def test_a_task_without_a_reference_is_refused(loaded, worker):
    task = loaded()
    task.description["has_reference"] = False
    with pytest.raises(worker.failures.Refused, match="no reference"):
        task.audit("train", 3)


@pytest.mark.parametrize(
    ("reference", "tolerance", "passing"),
    [
        (lambda x: x / 1000, {"atol": 0.01}, ["zeros", "shuffled reference"]),
        (lambda x: 1 + x / 1000, {"rtol": 0.01}, ["ones", "shuffled reference"]),
        (lambda x: x + 1e-4, {"atol": 1e-3}, ["input copy"]),
        (lambda x: x.mean(-1, keepdim=True).expand(16, 8), {"atol": 10.0},
         ["zeros", "ones", "input copy", "input mean", "shuffled reference"]),
        (lambda x: x.mean() + torch.linspace(0, 1e-5, 128).view(16, 8), {"atol": 1e-4},
         ["input mean", "shuffled reference"]),
        (lambda x: x.sort(dim=0).values, {}, []),
        (lambda x: x.sum().reshape(1), {}, []),
        (lambda x: x[:0], {}, []),
        (lambda x: 5, {}, []),
        (lambda x: x > 9, {}, ["zeros", "shuffled reference"]),
    ],
    ids=["zeros", "ones", "copy", "all", "mean", "sorted", "one element", "empty", "number", "mask"],
)  # fmt: skip
def test_wrong_programs_that_would_pass_are_named(audited, reference, tolerance, passing):
    assert audited(reference=reference, TOLERANCE={"float32": tolerance} if tolerance else {})["impostors"] == passing


def test_an_impostor_replaces_all_outputs_at_once(audited):
    assert audited(reference=lambda x: (x * 0, x))["impostors"] == []
    assert audited(reference=lambda x: {"a": x * 0, "b": x[:0], "n": 5, "c": torch.zeros(3)})["impostors"] == [
        "zeros", "shuffled reference",
    ]  # fmt: skip


def test_outputs_without_elements_stand_in_no_impostors_way(audited):
    found = audited(reference=lambda x: (x[:0], x + 1e-4), TOLERANCE={"float32": {"atol": 1e-3}})
    assert found["impostors"] == ["input copy"]


def test_any_input_of_the_size_may_be_the_copied_one(audited):
    def inputs(rows, device):
        return torch.randn(3), torch.zeros(rows, dtype=torch.complex64), torch.randn(rows), torch.randn(rows).half()

    def reference(a, b, c, d):
        return d.float()[None] + 1e-4

    found = audited(make_inputs=inputs, reference=reference, TOLERANCE={"float32": {"atol": 1e-3}})
    assert found["impostors"] == ["input copy"]


def column(rows, device):
    return (torch.randn(1, rows),)


def mixed(rows, device):
    return torch.randn(rows), torch.randn(rows)


@pytest.mark.parametrize(
    ("inputs", "reference"),
    [
        (make_inputs, lambda x: x.clone()),
        (make_inputs, lambda x: (x.clone(), {"half": x.half()})),
        (column, lambda x: x.t().contiguous()),
        (mixed, lambda x, y: y.clone()),
        (make_inputs, lambda x: x.mean()),
        (make_inputs, lambda x: (x + 1).mean() - 1),
        (lambda rows, device: (torch.randn(64, 64).bfloat16(),), lambda x: x.float().mean().to(x.dtype)),
    ],
    ids=["copy", "copies", "transpose of a row", "second input", "mean", "mean in another order", "bfloat16 mean"],
)
def test_an_impostor_that_is_what_is_asked_for_is_none(audited, inputs, reference):
    assert audited(make_inputs=inputs, reference=reference)["impostors"] == []


@pytest.mark.parametrize(
    ("inputs", "reference", "passing"),
    [
        (lambda rows, device: (torch.rand(rows, 8) + 0.1,), torch.relu, ["input copy"]),
        (make_inputs, lambda x: torch.where(x < -1.5, x * (1 + 1e-6), x), ["input copy"]),
        (make_inputs, lambda x: x.clamp(max=4.5), ["input copy"]),
        (make_inputs, lambda x: x * (1 + 2.0**-22), ["input copy"]),
        (make_inputs, lambda x: x.mean().clamp(max=1.0), ["input mean"]),
        (lambda rows, device: (torch.rand(rows, 8),), lambda x: x.abs().mean(), ["input mean"]),
    ],
    ids=["positive inputs", "random inputs too", "bound", "last bits", "bounded mean", "mean of positive inputs"],
)
def test_an_impostor_that_is_right_on_the_cases_inputs_only_stays_one(audited, inputs, reference, passing):
    assert audited(make_inputs=inputs, reference=reference)["impostors"] == passing


def test_no_tolerance_makes_an_impostor_what_is_asked_for(audited):
    """What the task allows does not count there, and zeros are never right."""
    weak = {"float32": {"atol": 50.0}}
    everything = ["zeros", "ones", "input copy", "input mean", "shuffled reference"]
    assert audited(reference=lambda x: x * 2, TOLERANCE=weak)["impostors"] == everything
    # A copy may be one, and others pass all the same.
    assert audited(reference=lambda x: x.clone(), TOLERANCE=weak)["impostors"] == [
        "zeros", "ones", "input mean", "shuffled reference",
    ]  # fmt: skip
    near = {"float32": {"rtol": 0.05}}
    assert audited(reference=lambda x: x.mean() * 1.01, TOLERANCE=near)["impostors"] == ["input mean"]


def test_inputs_that_do_not_vary_prove_nothing_of_a_copy(loaded, worker):
    task = loaded(reference=lambda x: x.clone(), make_inputs=lambda rows, device: (torch.arange(rows),))
    made = task.make_random("train", 3)
    assert not worker.audit._is_the_operation(task, "input copy", made, "train", 3)


def test_the_float64_reference_is_tried_on_random_inputs_whatever_was_looked_into_before(audited):
    def copy(x):
        if x.dtype == torch.float64 and x.min() > 0:
            raise ValueError("no positive doubles")
        return x.clone()

    found = audited(reference=copy)
    assert (found["impostors"], found["exact"]) == ([], None)
    assert "no positive doubles" in reasons(found)["shifted"]


def test_an_impostor_has_to_pass_beyond_the_sample(loaded):
    """Where only one of a million elements tells it from the expected output."""
    task = loaded(make_inputs=lambda rows, device: (torch.zeros(1 << 20),), reference=lambda x: x, STRIDES=True)
    task.make_inputs("train", 0)
    task.expect()
    assert "zeros" in task.impostors()
    task.expected[12345] = 1.0
    assert "zeros" not in task.impostors()


def test_impostors_of_the_baselines_outputs_are_found_too(loaded):
    task = loaded()
    task.make_inputs("train", 0)
    task.expect_from(torch.zeros(16, 8))
    assert task.impostors() == ["zeros", "shuffled reference"]


def test_strides_of_the_float64_result_do_not_count(audited):
    def reference(x):
        return x.t().contiguous().t() if x.dtype == torch.float64 else x.clone()

    assert len(audited(STRIDES=True, reference=reference)["variants"]) == 8


def test_without_double_precision_only_plain_variants_are_left(audited):
    found = audited(reference=lambda x: x.view(torch.int32).view(torch.float32) * 1, SPECIAL_VALUES=("nan", "inf"))
    assert "view(dtype)" in found["exact"]
    assert names(found) == ["zeros", "ones", "ramp", "shifted", "negative_zero", "nan", "inf"]
    assert reasons(found) == dict.fromkeys(("large", "tiny", "denormals"), "no float64 reference")


def test_a_variant_whose_outputs_are_not_finite_is_left_out(audited):
    found = audited(reference=lambda x: 1 / x)
    assert reasons(found)["zeros"] == "the reference's outputs are not finite"
    assert "ones" in names(found)


def test_the_boldest_scale_that_the_reference_bears_is_taken(audited):
    def scales(**parts):
        return {v["name"]: v["scale"] for v in audited(**parts)["variants"]}

    assert scales(reference=lambda x: x**3) | {"large": 256.0, "tiny": 2.0**-40} == scales(reference=lambda x: x**3)
    # Beyond the largest float32 with the bolder of the two.
    assert scales(reference=lambda x: x**18)["large"] == 16.0

    def half(rows, device):
        return (800 * torch.randn(rows, 8).clamp(-3, 3).half(),)

    assert scales(reference=lambda x: x, make_inputs=half)["large"] == 8.0


def test_a_variant_on_which_the_reference_errs_is_ill_conditioned(audited):
    found = audited(reference=lambda x: (x + 1000.0) - 1000.0)
    assert reasons(found)["ramp"].startswith("ill-conditioned: ")
    assert "elements of the reference's outputs are wrong" in reasons(found)["ramp"]
    assert "zeros" in names(found)


TIES = "indices there hang on ties: equal elements may come in any order"


@pytest.mark.parametrize(
    "reference",
    [
        lambda x: x.topk(3).indices,
        lambda x: x.sort(-1).indices.to(torch.int32),
        # Exponentials of tiny numbers are equal, though these are not.
        lambda x: (x.exp(), x.float().softmax(-1).argmax(-1)),
    ],
    ids=["topk", "sort", "softmax"],
)
def test_a_variant_whose_ties_decide_on_indices_is_left_out(audited, reference):
    found = audited(reference=reference)
    skipped = reasons(found)
    assert [skipped.get(name) for name in ("zeros", "ones", "denormals")] == [TIES] * 3
    assert {"ramp", "shifted"} <= set(names(found))


def test_ties_that_decide_on_nothing_are_no_objection(audited):
    def reference(x):
        # A number of elements, numbers rounded down, and a mask.
        return (x.sort(-1).values, torch.full((2,), x.shape[0]), x.floor().clamp(-9, 9).to(torch.int8), x > 0)

    found = audited(reference=reference)
    assert names(found)[:2] == ["zeros", "ramp"]
    # One and a little less are rounded down to different numbers.
    assert [skipped["name"] for skipped in found["skipped"] if "roundings" in skipped["reason"]] == ["ones"]
    assert not any("ties" in skipped["reason"] for skipped in found["skipped"])


def normalized(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:]) + 1


def test_what_magnifies_roundings_is_told_and_allowed(audited):
    found = {variant["name"]: variant["slacks"] for variant in audited(reference=normalized)["variants"]}
    # Rows of equal elements have the variance 0: what is left of it is multiplied by hundreds.
    assert 1e-5 < found["ones"]["output"] < 1e-2
    assert found["zeros"] == found["ramp"] == {}


def test_inputs_on_which_roundings_are_everything_are_skipped(audited):
    found = audited(reference=lambda x: (x - 1) * 1e9)
    assert "ones" not in names(found)
    assert "roundings of the inputs change the outputs" in next(
        skipped["reason"] for skipped in found["skipped"] if skipped["name"] == "ones"
    )


def test_what_was_expected_survives_the_look_for_ties(loaded, worker):
    task = loaded(reference=lambda x: (x.sum(), x.argmax(-1)))
    inputs = task.make_inputs("train", 3, "zeros")
    task.expect()
    task.expect_exact()
    expected, exact = task.expected, task.exact
    assert worker.audit._hangs_on_ties(task, 0)
    assert (task.inputs is inputs, task.expected is expected, task.exact is exact) == (True, True, True)
    assert not inputs[0].any()


def test_a_reference_that_fails_on_a_variant_says_why(audited):
    def reference(x):
        if not x.any():
            raise ValueError("all zeros")
        if x.dtype == torch.float64 and (x == 1).all():
            raise ValueError("doubles of one")
        return x

    found = audited(reference=reference)
    assert reasons(found) == {
        "zeros": "the reference fails: ValueError: all zeros",
        "ones": "the reference does not work in float64: ValueError: doubles of one",
    }


def test_special_values_are_tried_where_the_task_allows_them(audited):
    assert {"nan", "inf"} & set(names(audited())) == set()
    found = audited(SPECIAL_VALUES=("nan",))
    assert names(found)[-1] == "nan"
    assert found["variants"][-1]["scale"] is None
    # A reference whose NaN come and go with precision can't judge them.
    found = audited(SPECIAL_VALUES=("nan",), reference=lambda x: x if x.dtype == torch.float64 else x.nan_to_num())
    assert reasons(found)["nan"].startswith("ill-conditioned")


@pytest.mark.parametrize("tensor", [torch.arange(4), torch.ones(4) > 0, torch.ones(4).to(torch.float8_e8m0fnu)])
def test_a_case_without_floating_inputs_has_no_variants(audited, tensor):
    found = audited(make_inputs=lambda rows, device: (tensor,), reference=lambda x: x.view(torch.uint8) * 1)
    assert (found["variants"], found["skipped"]) == ([], [])
