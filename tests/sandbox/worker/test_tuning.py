# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""What Triton's own autotuner chose and took, told afterwards; only the kernels below it are made up."""

import importlib
import math
from types import SimpleNamespace

import pytest
import torch
import triton
from triton.runtime.autotuner import Autotuner, Heuristics, OutOfResources
from triton.runtime.jit import KernelInterface


class Clock:
    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


class Kernel(KernelInterface):
    """What a launch reaches in the end."""

    def __init__(self, function):
        self.fn = function
        self.arg_names = ["x", "n", "BLOCK"]
        self.launched = []

    def run(self, *args, **options):
        if options.get("BLOCK") == 4096:
            raise OutOfResources(1, 0, "shared memory")
        self.launched.append(options)


def made_up(x, n, BLOCK):
    pass


def config(block, **options):
    return triton.Config({"BLOCK": block}, **options)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def tuning(worker, clock, monkeypatch):
    """The module as it is in a new process, watching."""
    module = importlib.import_module("tritonforge_worker.tuning")
    for owner, name in ((Autotuner, "__init__"), (Autotuner, "_bench"), (Heuristics, "__init__")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    for name, value in {"_tuners": {}, "_guides": [], "_trials": 0, "_installed": False, "_watching": False}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "time", clock)
    module.watch()
    return module


@pytest.fixture
def tune(clock):
    """Decorates a made-up kernel; trying a configuration takes as many seconds as its block has elements."""

    def decorate(configs, function=made_up):
        kernel = Kernel(function)

        def bench(call, quantiles):
            call()
            clock.now += kernel.launched[-1]["BLOCK"]
            return [float(kernel.launched[-1]["BLOCK"])] * 3

        return triton.autotune(configs, key=["n"], do_bench=bench)(kernel)

    return decorate


def test_a_choice_is_told_with_what_it_took(tuning, tune):
    tuner = tune([config(128, num_warps=8), config(64, num_stages=5), config(256)])
    for _ in range(3):
        tuner[(1,)](torch.ones(1), 100)
    assert tuning.report() == [
        {
            "kernel": "made_up", "configuration": "BLOCK: 64, num_warps: 4, num_stages: 5",
            "configurations": 3, "tuning_s": 128 + 64 + 256,
        }
    ]  # fmt: skip


def test_a_configuration_says_what_is_not_usual(tuning):
    unusual = triton.Config({"BLOCK": 8, "EVEN": True}, num_ctas=2, maxnreg=128)
    assert tuning.in_words(unusual) == "BLOCK: 8, EVEN: True, num_warps: 4, num_stages: 3, num_ctas: 2, maxnreg: 128"
    assert tuning.in_words(SimpleNamespace(kwargs={}, num_warps=1, num_stages=2)) == "num_warps: 1, num_stages: 2"


def test_each_key_has_a_choice_of_its_own(tuning, tune):
    tuner = tune([config(128), config(64)])
    for n in (100, 200, 100):
        tuner[(1,)](torch.ones(1, dtype=torch.float16), n)
    one, other = tuning.report()
    assert one["configuration"] == "BLOCK: 64, num_warps: 4, num_stages: 3 [n: 100, float16]"
    assert other["configuration"] == "BLOCK: 64, num_warps: 4, num_stages: 3 [n: 200, float16]"
    assert [each["tuning_s"] for each in (one, other)] == [192, 192]


def test_where_there_is_nothing_to_choose_nothing_was_tried(tuning, tune):
    tune([config(32)])[(1,)](torch.ones(1), 100)
    (entry,) = tuning.report()
    assert (entry["configuration"], entry["configurations"]) == ("BLOCK: 32, num_warps: 4, num_stages: 3", 1)
    assert entry["tuning_s"] is None


def test_a_configuration_that_cannot_be_launched_was_tried_too(tuning, tune):
    tune([config(4096), config(64)])[(1,)](torch.ones(1), 100)
    (entry,) = tuning.report()
    assert (entry["configuration"], entry["configurations"]) == ("BLOCK: 64, num_warps: 4, num_stages: 3", 2)


def test_an_error_of_the_candidates_own_passes_through_and_the_next_search_is_told(tuning, clock):
    broken = True

    def bench(call, quantiles):
        clock.now += 1
        if broken:
            raise KeyError("broken")
        return [1.0] * 3

    tuner = triton.autotune([config(64), config(32)], key=["n"], do_bench=bench)(Kernel(made_up))
    with pytest.raises(KeyError, match="broken"):
        tuner[(1,)](torch.ones(1), 100)
    assert tuning.report() == []
    broken = False
    tuner[(1,)](torch.ones(1), 100)
    assert tuning.report()[0]["tuning_s"] == 3


@pytest.mark.parametrize("times", [2.0, (2.0, 1.0, 3.0), [math.inf] * 3])
def test_what_a_benchmark_of_ones_own_returns_is_left_alone(tuning, times):
    tuner = triton.autotune([config(64), config(32)], key=["n"], do_bench=lambda call, quantiles: times)(
        Kernel(made_up)
    )
    tuner[(1,)](torch.ones(1), 100)
    assert list(tuner.configs_timings.values()) == [times, times]
    assert tuning.report()[0]["configurations"] == 2


def test_a_tuner_that_never_launched_chose_nothing(tuning, tune):
    tune([config(64), config(32)])
    assert tuning.report() == []


def test_kernels_of_an_installed_package_are_not_the_candidates(tuning, tune):
    space = {}
    exec(compile("def theirs():\n    pass\n", "/usr/lib/python3/dist-packages/flash.py", "exec"), space)
    tune([config(64)], space["theirs"])[(1,)](torch.ones(1), 100)
    guided = triton.heuristics({"BLOCK": lambda arguments: 64})(Kernel(space["theirs"]))
    guided[(1,)](torch.ones(1), 100)
    assert tuning.report() == []


def test_a_tuner_made_anew_in_each_call_pays_each_time(tuning, tune):
    for _ in range(3):
        tune([config(64), config(32)])[(1,)](torch.ones(1), 100)
    (entry,) = tuning.report()
    assert entry["tuning_s"] == 3 * 96


def test_the_last_choices_are_told_where_there_are_too_many(tuning, tune, monkeypatch):
    monkeypatch.setattr(tuning, "ENTRIES_LIMIT", 2)
    tuner = tune([config(64), config(32)])
    for n in (1, 2, 3):
        tuner[(1,)](torch.ones(1), n)
    assert [entry["configuration"][-15:] for entry in tuning.report()] == ["[n: 2, float32]", "[n: 3, float32]"]


def test_no_more_tuners_and_trials_are_remembered_than_allowed(tuning, tune, monkeypatch):
    monkeypatch.setattr(tuning, "TUNERS_LIMIT", 1)
    monkeypatch.setattr(tuning, "TRIALS_LIMIT", 1)
    for _ in range(2):
        tune([config(64), config(32)])[(1,)](torch.ones(1), 100)
    assert [entry["configurations"] for entry in tuning.report()] == [1]


def test_heuristics_tell_what_they_gave_last(tuning):
    kernel = Kernel(made_up)
    guided = triton.heuristics({"BLOCK": lambda arguments: arguments["n"] // 2, "EVEN": lambda arguments: True})(kernel)
    assert tuning.report() == []
    for n in (100, 300):
        guided[(1,)](torch.ones(1), n)
    chosen = {"kernel": "made_up", "configuration": "BLOCK: 150, EVEN: True", "configurations": 1, "tuning_s": None}
    assert tuning.report() == [chosen]
    assert kernel.launched[-1]["BLOCK"] == 150


def test_heuristics_below_an_autotuner_are_told_beside_it(tuning, clock):
    guided = triton.heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0})(Kernel(made_up))
    tuner = triton.autotune([config(64), config(32)], key=["n"], do_bench=lambda call, quantiles: [1.0] * 3)(guided)
    tuner[(1,)](torch.ones(1), 96)
    configurations = [entry["configuration"] for entry in tuning.report()]
    assert configurations == ["BLOCK: 64, num_warps: 4, num_stages: 3", "EVEN: False"]


def test_a_launch_takes_as_long_as_ever_once_nobody_watches(tuning, tune):
    runs = Autotuner.run, Heuristics.run
    choose = {"BLOCK": lambda arguments: 64}
    guided = triton.heuristics(choose)(Kernel(made_up))
    guided[(1,)](torch.ones(1), 100)
    tuning.unwatch()
    assert guided.values is choose
    assert triton.heuristics(choose)(Kernel(made_up)).values is choose
    assert (Autotuner.run, Heuristics.run) == runs
    assert [entry["configuration"] for entry in tuning.report()] == ["BLOCK: 64"]
    # A search of which nobody would know could not be told from a fast kernel.
    tune([config(64), config(32)])[(1,)](torch.ones(1), 100)
    assert [entry["configurations"] for entry in tuning.report()] == [2, 1]


def test_heuristics_that_the_candidate_replaced_stay_its_own(tuning):
    guided = triton.heuristics({"BLOCK": lambda arguments: 64})(Kernel(made_up))
    replaced = {"BLOCK": lambda arguments: 32}
    setattr(guided, "values", replaced)  # noqa: B010 - the type of each lambda is one of its own
    tuning.unwatch()
    assert guided.values is replaced


def test_watching_twice_notes_once(tuning, tune):
    tuning.watch()
    tune([config(64), config(32)])[(1,)](torch.ones(1), 100)
    assert [entry["configurations"] for entry in tuning.report()] == [2]
