"""Whether an adapted task can judge anything, as seen when the baseline runs: here in Triton's interpreter."""

from pathlib import Path
from typing import Any

import pytest

from tests.server.adapters.files import LINE, loaded
from tests.server.adapters.grounds import HEAD, INTO, ONE, TEST, WRITES, grounded
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.adapters import ground as module
from tritonforge.server.adapters.find import choices
from tritonforge.server.adapters.ground import ground
from tritonforge.server.adapters.model import Adapted
from tritonforge.server.adapters.settle import Settled
from tritonforge.server.services import Services

pytestmark = pytest.mark.anyio

UNWRITTEN = (Kind.WRONG, Kind.REJECTED)
"""What stands there may be a number, or none, which no result is compared with."""
RAGGED = f"def entry(x):\n    y = torch.empty_like(x)\n    {INTO}(x, y, x.numel() // 16 * 16)\n    return y\n"
"""The rest is left unwritten where the size is no multiple of 16."""


def in_pytest(folder: Path, kernel: str, calls: str) -> Path:
    """The same as a test file that holds both."""
    file = folder / "test_made_up.py"
    body = "".join(f"    {line}\n" for line in calls.splitlines())
    file.write_text(
        f"{HEAD}{kernel}\n\ndef x(n):\n    return torch.randn(n, device='cuda')\n\n\ndef test_it():\n{body}"
    )
    return file


@pytest.mark.parametrize(
    "returned",
    ["", "    return out\n", "    return None\n", "    return out, None\n"],
    ids=["nothing", "it", "None", "it and None"],
)
async def test_an_argument_that_is_written_to_through_a_helper_is_the_output(
    services: Services, tmp_path: Path, returned: str
) -> None:
    found = await grounded(services, tmp_path, WRITES + returned, ONE)
    task = loaded(found.adapted)
    assert (found.why_not, found.cases, task.IN_PLACE) == (None, 1, ("out",))
    assert "out: written to, as seen when the baseline ran: outputs" in found.adapted.assumptions


async def test_it_is_found_in_a_test_file_too(services: Services, tmp_path: Path) -> None:
    found = await ground(services, choices(in_pytest(tmp_path, WRITES, ONE)), target="h100")
    assert (found.why_not, loaded(found.adapted).IN_PLACE) == (None, ("out",))


@pytest.mark.parametrize(
    "kernel",
    [
        f"{WRITES}    return x + 1\n",
        f"{WRITES}    return out, x + 1\n",
        f"{WRITES}    out = x + 1\n    return out\n",
        f"{WRITES}    if x.numel() < 5:\n        return None\n    return x.sum()\n",
        f"def entry(x, out=None):\n    {INTO}(x, x)\n    if out is None:\n        out = x + 1\n    return out\n",
    ],
    ids=["new", "both", "under its name", "in a branch", "where none was given"],
)
async def test_what_is_returned_anew_is_not_forgotten_for_an_argument(
    services: Services, tmp_path: Path, kernel: str
) -> None:
    found = await grounded(services, tmp_path, kernel, "entry(x(96))\n" if "None):" in kernel else ONE)
    assert loaded(found.adapted).IN_PLACE == ()
    assert found.kind is Kind.WRONG
    assert (found.why_not or "").startswith("the call changed its inputs: input ")
    assert found.adapted.assumptions[-1] == f"no candidate can be judged: wrong: {found.why_not}"


async def test_an_argument_that_is_made_where_it_is_not_given_is_the_output_where_it_is(
    services: Services, tmp_path: Path
) -> None:
    kernel = f"def entry(x, out=None):\n    if out is None:\n        out = torch.empty_like(x)\n    {INTO}(x, out)\n"
    found = await grounded(services, tmp_path, f"{kernel}    return out\n", ONE)
    assert (found.why_not, loaded(found.adapted).IN_PLACE) == (None, ("out",))


@pytest.mark.parametrize(("returned", "told"), [("x + 1", True), ("out", False)])
async def test_what_the_source_shows_to_be_written_to_beside_a_result_is_told(
    services: Services, tmp_path: Path, returned: str, told: bool
) -> None:
    found = await grounded(services, tmp_path, f"def entry(x, out):\n    _into(x, out)\n    return {returned}\n", ONE)
    assert (found.why_not, loaded(found.adapted).IN_PLACE) == (None, ("out",))
    said = "judged by out alone: what entry may return is not"
    assert (said in found.adapted.assumptions) is told


@pytest.mark.parametrize(
    ("given", "cases", "in_place"), [(1, ["call_1", "call_2"], ()), (2, ["call_3", "call_4"], ("out",))]
)
async def test_cases_that_lack_the_argument_stay_where_they_are_more(
    services: Services, tmp_path: Path, given: int, cases: list[str], in_place: tuple[str, ...]
) -> None:
    kernel = f"def entry(x, out=None):\n    if out is None:\n        out = torch.empty_like(x)\n    {INTO}(x, out)\n"
    calls = "".join(f"entry(x({size}))\n" for size in (64, 96))
    calls += "".join(f"entry(x({size}), torch.zeros({size}, device='cuda'))\n" for size in (80, 112)[:given])
    found = await grounded(services, tmp_path, f"{kernel}    return out\n", calls)
    task = loaded(found.adapted)
    assert (found.why_not, list(task.CASES), task.IN_PLACE) == (None, cases, in_place)


async def test_a_case_in_which_it_disagrees_with_itself_is_left_out_and_the_others_stay(
    services: Services, tmp_path: Path
) -> None:
    calls = "results = {}\nresults['even'] = entry(x(96))\nresults['ragged'] = entry(x(100))\n"
    found = await grounded(services, tmp_path, RAGGED, calls)
    assert (found.why_not, found.cases, list(loaded(found.adapted).CASES)) == (None, 1, ["even"])
    (said,) = [each for each in found.adapted.assumptions if "left out on the GPU" in each]
    assert said.startswith("left out on the GPU: case ragged (")


async def test_a_case_that_ends_its_worker_costs_the_others_nothing(services: Services, tmp_path: Path) -> None:
    kernel = f"import os\n\n{WRITES}    if x.numel() == 80:\n        os._exit(1)\n".replace("import os\n\n", "")
    calls = "".join(f"entry(x({size}), torch.zeros({size}, device='cuda'))\n" for size in (64, 80, 96))
    found = await grounded(services, tmp_path, f"import os\n\n\n{kernel}", calls)
    assert found.why_not is None
    assert list(loaded(found.adapted).CASES) == ["call_1", "call_3"]
    assert loaded(found.adapted).IN_PLACE == ("out",)


async def test_results_that_differ_from_call_to_call_are_nondeterministic(services: Services, tmp_path: Path) -> None:
    kernel = "COUNT = []\n\n\ndef entry(x):\n    y = torch.empty_like(x)\n    _into(x, y)\n    COUNT.append(1)\n"
    found = await grounded(
        services, tmp_path, f"{kernel}    return y * (1 + 2e-7 * (len(COUNT) % 2))\n", "entry(x(96))\n"
    )
    assert (found.why_not, loaded(found.adapted).NONDETERMINISTIC) == (None, True)
    assert "two calls of the baseline on the same inputs differ: candidates may, within tolerance" in (
        found.adapted.assumptions
    )


async def test_where_nothing_can_be_judged_it_says_why_and_all_cases_stay(services: Services, tmp_path: Path) -> None:
    found = await grounded(services, tmp_path, RAGGED, "entry(x(100))\nentry(x(52))\n")
    assert (found.cases, list(loaded(found.adapted).CASES)) == (2, ["call_1", "call_2"])
    assert found.kind in UNWRITTEN
    assert found.adapted.assumptions[-1].startswith(f"no candidate can be judged: {found.kind}: ")


async def test_the_next_reading_is_tried_where_the_first_leaves_nothing(services: Services, tmp_path: Path) -> None:
    other = "\n\ndef other(x):\n    y = torch.empty_like(x)\n    _into(x, y)\n    return y\n"
    found = await grounded(services, tmp_path, RAGGED + other, "entry(x(100))\nentry(x(52))\nother(x(100))\n")
    assert (found.why_not, found.adapted.entry, found.cases) == (None, "other", 1)


async def test_the_first_reading_stays_where_none_is_better(services: Services, tmp_path: Path) -> None:
    other = RAGGED.replace("entry", "other")
    found = await grounded(services, tmp_path, f"{RAGGED}\n\n{other}", "entry(x(100))\nentry(x(52))\nother(x(100))\n")
    assert found.adapted.entry == "entry"
    assert found.kind in UNWRITTEN


def crashing(where: str) -> str:
    """RAGGED, raising where its kernels really run, on sizes that a condition holds for."""
    raised = f"    if x.numel() {where} and y[0] == 2 * x[0]:\n        raise RuntimeError('an illegal access')\n"
    return RAGGED.replace("    return y", f"{raised}    return y")


def with_speed(folder: Path, kernel: str, sizes: str, drawn: str = "x(size)") -> list[Adapted]:
    """Its readings, with a performance file of these sizes, and a test of 96 elements."""
    file, speed = folder / "made_up.py", folder / "made_up_perf.py"
    file.write_text(f"{HEAD}{kernel}\n{LINE}\n\n{TEST}entry(x(96))\n")
    speed.write_text(
        "import torch\nfrom TritonBench_v1.made_up import entry\nfrom performance_utils import Performance_Metrics\n\n"
        "def x(n):\n    return torch.randn(n)\n\n\nclass performance_metrics(Performance_Metrics):\n"
        f"    def get_input_tensors(self):\n        self.input_tensors = [{drawn} for size in {sizes}]\n\n"
        "    def to_cuda(self, input_tensor):\n        return input_tensor.cuda()\n\n"
        "    def call_op(self, input_tensor):\n        return entry(input_tensor)\n"
    )
    return choices(file, performance=speed)


async def test_a_case_in_which_it_crashes_is_not_timed_where_nothing_can_be_judged(
    services: Services, tmp_path: Path
) -> None:
    kernel = crashing("== 52")
    found = await grounded(services, tmp_path, kernel, "entry(x(52))\nentry(x(100))\n")
    assert (found.cases, list(loaded(found.adapted).CASES), found.runs) == (1, ["call_2"], 2)
    assert found.kind in UNWRITTEN
    *_, left_out, why = found.adapted.assumptions
    assert left_out.startswith("left out on the GPU: case call_1 (runtime_error: ")
    assert why.startswith(f"no candidate can be judged: {found.kind}: ")


async def test_of_readings_that_can_not_judge_one_that_runs_comes_before_one_that_crashes(
    services: Services, tmp_path: Path
) -> None:
    first = crashing("> 0")
    kernel = f"{first}\n\n{RAGGED.replace('entry', 'other')}"
    found = await grounded(services, tmp_path, kernel, "entry(x(100))\nentry(x(52))\nother(x(100))\n")
    assert (found.adapted.entry, found.runs) == ("other", 2)
    assert found.kind in UNWRITTEN
    assert found.adapted.assumptions[-1].startswith(
        "another reading came first, and its baseline does not run: runtime_error: "
    )


async def test_where_it_crashes_in_every_reading_the_first_stays_as_it_is(services: Services, tmp_path: Path) -> None:
    first = crashing("> 0")
    kernel = f"{first}\n\n{first.replace('entry', 'other')}"
    found = await grounded(services, tmp_path, kernel, "entry(x(100))\nentry(x(52))\nother(x(100))\n")
    assert (found.adapted.entry, found.runs, found.kind) == ("entry", 0, Kind.RUNTIME_ERROR)
    assert list(loaded(found.adapted).CASES) == ["call_1", "call_2"]


async def test_a_small_case_is_timed_where_it_runs_in_no_other(services: Services, tmp_path: Path) -> None:
    kernel = crashing("!= 96")
    found = await ground(services, with_speed(tmp_path, kernel, "(320, 640)")[:1], target="h100")
    task = loaded(found.adapted)
    assert (found.runs, list(task.CASES)) == (1, ["call_1"])
    assert task.CASES["call_1"].keys() == {"call", "inputs"}
    assert "timed on call_1, which is small: the baseline runs in no other case" in found.adapted.assumptions


async def test_other_sizes_are_tried_where_the_usual_ones_fail_and_two_of_them_are_timed(
    services: Services, tmp_path: Path
) -> None:
    # The usual sizes are the largest and what is nearest to a sixteenth of it.
    kernel = crashing("in (64, 1024)")
    found = await ground(services, with_speed(tmp_path, kernel, "(64, 128, 250, 256, 512, 1024)"), target="h100")
    task = loaded(found.adapted)
    assert found.why_not is None
    # That of 250 elements is not written to its end.
    assert [case["inputs"] for case in task.CASES.values() if "small" not in case] == ["x 512 float32", "x 256 float32"]
    assert [case["inputs"] for case in task.HIDDEN_CASES.values()] == ["x 128 float32"]


async def test_other_inputs_are_not_tried_for_what_does_not_load(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[bool] = []
    settle = module.settle

    async def counted(services: Services, tasks: Any, **more: Any) -> Settled:
        tried.append(tasks[0].is_spare)
        return await settle(services, tasks, **more)

    monkeypatch.setattr(module, "settle", counted)
    kernel = f"import no_such_module\n\n\n{RAGGED}"
    found = await ground(services, with_speed(tmp_path, kernel, "(64, 128, 256)"), target="h100")
    assert (found.kind, found.runs, tried) == (Kind.REJECTED, 0, [False, False])


async def test_places_that_are_written_to_twice_by_chance_are_drawn_apart(services: Services, tmp_path: Path) -> None:
    # Each call has another order of what is stored to the same place.
    kernel = (
        "COUNT = []\n\n\ndef entry(x):\n    y, out = torch.empty_like(x), torch.zeros(64)\n    _into(x, y)\n"
        "    COUNT.append(1)\n    if x.is_floating_point():\n        raise RuntimeError('no places')\n"
        "    order = range(64) if len(COUNT) % 2 else range(63, -1, -1)\n"
        "    for at in order:\n        out[y[at] // 2] = at\n    return out\n"
    )
    tasks = with_speed(tmp_path, kernel, "(64,)", "torch.randint(0, size, (size,))")
    found = await ground(services, tasks, target="h100")
    assert (found.why_not, loaded(found.adapted).DISTINCT) == (None, True)


@pytest.mark.parametrize(("value", "special"), [("nan", ("nan",)), ("nan, -inf", ("nan", "inf"))])
async def test_a_baseline_that_returns_nan_in_every_reading_may(
    services: Services, tmp_path: Path, value: str, special: tuple[str, ...]
) -> None:
    values = ", ".join(f"float('{each}')" for each in value.split(", "))
    kernel = f"def entry(x):\n    y = torch.empty_like(x)\n    _into(x, y)\n    y[3:{3 + len(special)}] = "
    found = await grounded(services, tmp_path, f"{kernel}torch.tensor([{values}])\n    return y\n", "entry(x(96))\n")
    assert (found.why_not, loaded(found.adapted).SPECIAL_VALUES) == (None, special)
    said = f"the baseline returns {' and '.join(special)} in places, and a candidate has to as well"
    assert said in found.adapted.assumptions


async def test_a_reading_without_nan_comes_before_one_with_them(services: Services, tmp_path: Path) -> None:
    kernel = "def entry(x):\n    y = torch.empty_like(x)\n    _into(x, y)\n    y[3] = float('nan')\n    return y\n"
    other = "\n\ndef other(x):\n    y = torch.empty_like(x)\n    _into(x, y)\n    return y\n"
    found = await grounded(services, tmp_path, kernel + other, "entry(x(96))\nentry(x(64))\nother(x(96))\n")
    assert (found.adapted.entry, found.why_not) == ("other", None)
    assert not hasattr(loaded(found.adapted), "SPECIAL_VALUES")


@pytest.mark.parametrize("returned", ["    return y\n", ""])
async def test_an_entry_that_draws_its_own_inputs_agrees_with_itself(
    services: Services, tmp_path: Path, returned: str
) -> None:
    kernel = "def entry(n):\n    x = torch.randn(n, device='cuda')\n    y = torch.empty_like(x)\n    _into(x, y)\n"
    found = await grounded(
        services, tmp_path, kernel.replace("_into(x, y)", "_double[(2,)](x, y, n, BLOCK=64)") + returned, "entry(96)\n"
    )
    assert (found.why_not, found.adapted.entry) == (None, "seeded_entry")


async def test_a_task_with_a_reference_of_its_own_needs_no_grounding(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "problem.py"
    file.write_text(
        "import torch\nfrom torch import nn\n\nrows = 4\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        "        return x * 2\n\n\ndef get_inputs():\n    return [torch.randn(rows, 8)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    found = await ground(services, choices(file), target="h100")
    assert (found.why_not, found.cases) == (None, 1)


@pytest.mark.parametrize("kind", [Kind.UNAVAILABLE, Kind.CANCELLED])
async def test_what_is_not_an_artefacts_doing_is_raised(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    async def settle(*given: object, **more: object) -> Settled:
        raise Stopped(kind, Problem(stage="environment", message="the GPU is lost"))

    monkeypatch.setattr(module, "settle", settle)
    with pytest.raises(Stopped) as caught:
        await grounded(services, tmp_path, WRITES, ONE)
    assert caught.value.kind is kind


async def test_where_no_reading_can_be_used_it_says_why_of_the_first(services: Services, tmp_path: Path) -> None:
    kernel = f"{WRITES}\n\ndef other(x, out):\n    {INTO}(x, out)\n"
    calls = "def broken():\n    raise ValueError('no input ' + str(torch.zeros(2).numel()))\n\n"
    with pytest.raises(Stopped) as caught:
        await grounded(services, tmp_path, kernel, f"{calls}entry(broken(), x(3))\nother(x(3), x(3))\n")
    assert "entry" in caught.value.problem.message
