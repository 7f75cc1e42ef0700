"""One kernel from its task to its record: every way in which it can end, and how a later sitting goes on."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.server.campaign.made_up_records import on
from tests.server.optimize.workshop import FAST, SLOW, WRONG, Workshop
from tests.server.runs.fake_evaluator import GPU, candidate, task
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.campaign import kernel as module
from tritonforge.server.campaign.folder import Adaptation, CampaignFolder, write
from tritonforge.server.campaign.kernel import Bench, Won, worked
from tritonforge.server.campaign.model import Entry, KernelRecord, Plan
from tritonforge.server.optimize.headless import Opened, opened, optimize_with
from tritonforge.server.optimize.model import OptimizeResult
from tritonforge.server.optimize.model import Plan as Headless
from tritonforge.server.runs.record import Frozen, Run
from tritonforge.server.runs.store import Store

pytestmark = pytest.mark.anyio

MADE = Adaptation(form="tritonbench", entry="entry", cases=2, assumptions=["none"], seconds=1.5, on_gpu=True)
ENTRY = Entry(name="sin", path=Path("/home/me/kernels/sin.py"), lines=7)
SHAPES = [on("large", 1.4)]
BASELINE = candidate(1, findings=["V1"])


class Site:
    """A kernel whose task is there, and a bench that measures what files say."""

    def __init__(self, workshop: Workshop, shared: Opened) -> None:
        self.workshop, self.shared = workshop, shared
        self.folder = CampaignFolder(workshop.folder / "campaign")
        self.place = self.folder.kernel("sin")
        self.said: list[str] = []
        self.won: list[Won] = []
        self.fails: BaseException | None = None
        """What is raised in place of an optimization, or in the middle of one."""
        self.in_the_middle = False
        self.alone: Any = [SimpleNamespace(case="large", device_us=12.5, speed_of_light_pct=40.0)]
        self.illegal: str | None = None
        """A case in which it does not run when it is timed beside nothing."""
        self.unseen: Any = (SHAPES, ["derived-2 was left out: the baseline is wrong there"])
        self.files(BASELINE, task("made up"))

    def files(self, kernel: str, given: str) -> None:
        write(self.place / "kernel.py", kernel)
        write(self.place / "task.py", given)

    def agent(self, *answers: tuple[str, str]) -> str:
        return self.workshop.program(
            f"text, why = {answers!r}[request['round'] - 1]\nprint(json.dumps({{'kernel': text, 'strategy': why}}))"
        )

    async def _optimize(self, plan: Headless, say: Any, begun: Any) -> OptimizeResult:
        if self.fails is not None and not self.in_the_middle:
            raise self.fails
        if self.fails is not None:
            await optimize_with(plan._replace(agent="none"), *self.shared, say=say, begun=begun)
            raise self.fails
        return await optimize_with(plan, *self.shared, say=say, begun=begun)

    async def _alone(self, kernel: Any, given: Any, cases: Any) -> Any:
        if isinstance(self.alone, BaseException):
            raise self.alone
        if self.illegal is not None and self.illegal in (cases or [self.illegal]):
            raise stopped(Kind.RUNTIME_ERROR, "an illegal access")
        return SimpleNamespace(cases=self.alone)

    async def _unseen(self, won: Won) -> Any:
        self.won.append(won)
        if isinstance(self.unseen, BaseException):
            raise self.unseen
        return self.unseen

    async def work(self, agent: str, made: Adaptation = MADE, *, gpu: str | None = GPU, **more: Any) -> KernelRecord:
        plan = Plan.model_validate({"folder": Path("/home/me/kernels"), "agent": agent, "rounds": 1, **more})
        store = self.shared.machine.store
        unseen = None if gpu is None else self._unseen
        bench = Bench(store, self._optimize, self._alone, unseen, gpu, "GPU-1", {"name": gpu})
        record = await worked(bench, self.folder, plan, ENTRY, made, self.said.append)
        self.folder.put(record)
        return record

    def stored(self, name: str) -> Any:
        return json.loads((self.place / name).read_text())


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch)


@pytest.fixture
async def site(workshop: Workshop) -> AsyncGenerator[Site]:
    async with opened(workshop.settings, evaluator=lambda _: workshop.fake) as shared:
        yield Site(workshop, shared)


def stopped(kind: Kind, message: str = "as it is", stage: str = "run") -> Stopped:
    return Stopped(kind, Problem(stage=stage, message=message))


# How it can end


async def test_a_winner_is_recorded_with_what_is_known_of_it(site: Site) -> None:
    record = await site.work(site.agent(FAST))
    assert (record.outcome, record.why, record.failure_kind) == ("gained", None, None)
    assert (record.path, record.lines, record.form, record.cases, record.gpu) == ("sin.py", 7, "tritonbench", 2, GPU)
    assert record.gain is not None
    assert record.verified is not None
    assert record.speedup == record.verified.ratio == pytest.approx(1.5)
    assert (record.attempts, record.attempt_kinds, record.hidden_checked) == (1, {"ok": 1}, 1)
    assert [(case.case, case.device_us) for case in record.baseline] == [("large", 100.0), ("ragged", 100.0)]
    assert record.seconds.keys() == {"adapt", "baseline", "agent", "finish", "unseen", "total"}
    assert record.seconds["total"] >= record.seconds["adapt"] == 1.5
    assert FAST[0] in [file.read_text() for file in (site.place / "winner").glob("*.py")]


async def test_a_winner_is_tried_on_other_shapes_and_what_was_left_out_is_kept(site: Site) -> None:
    record = await site.work(site.agent(FAST))
    assert (record.unseen, record.unseen_absent) == (SHAPES, None)
    assert record.unseen_left_out == ["derived-2 was left out: the baseline is wrong there"]
    (won,) = site.won
    assert (won.kernel.text, won.baseline.text, won.seed) == (FAST[0], BASELINE, record.run_id)
    # What it was accepted on, it was optimized for.
    assert won.checked == [{"n": 7}]


ABSENT: list[tuple[Any, str | None, str]] = [
    (([], ["a is gone", "b too"]), GPU, "a is gone; b too"),
    (([], []), GPU, "no other shape is known"),
    (stopped(Kind.UNAVAILABLE, "the GPU is lost"), GPU, "unavailable: the GPU is lost"),
    (None, None, "this machine has no GPU"),
]


@pytest.mark.parametrize(("unseen", "gpu", "absent"), ABSENT)
async def test_a_winner_without_other_shapes_says_why(site: Site, unseen: Any, gpu: str | None, absent: str) -> None:
    site.unseen = unseen
    record = await site.work(site.agent(FAST), gpu=gpu)
    # However that ends, what was won is kept.
    assert (record.outcome, record.unseen, record.unseen_absent) == ("gained", [], absent)


async def test_other_shapes_are_left_alone_where_nobody_asked(site: Site) -> None:
    record = await site.work(site.agent(FAST), unseen=False)
    assert (site.won, record.unseen_absent) == ([], "not asked for")
    assert "unseen" not in record.seconds


async def test_no_gain_says_why_and_what_was_tried(site: Site) -> None:
    record = await site.work(site.agent(SLOW, WRONG), rounds=2)
    assert (record.outcome, record.speedup, record.attempts) == ("no_gain", 1.0, 2)
    assert record.attempt_kinds == {"ok": 1, "wrong": 1}
    assert record.why
    assert (record.gain, record.verified, record.unseen, site.won) == (None, None, [], [])
    assert not (site.place / "winner").exists()


async def test_the_best_on_the_device_is_told_with_why_it_was_refused(site: Site) -> None:
    loses = (candidate(6, ratio=3.0, cases={"ragged": 0.7}), "huge tiles")
    record = await site.work(site.agent(loses, SLOW, WRONG), rounds=3)
    assert (record.outcome, record.speedup) == ("no_gain", 1.0)
    assert record.device_gain is not None
    assert record.device_gain.ratio > 1.9
    assert record.device_gain_refused is not None
    assert "ragged" in record.device_gain_refused


async def test_that_the_run_ends_with_it_is_no_reason_to_refuse_it(site: Site) -> None:
    record = await site.work(site.agent((candidate(6, ratio=3.0, cases={"ragged": 0.7}), "huge tiles")), rounds=1)
    assert record.device_gain_refused is not None
    assert "ragged" in record.device_gain_refused


async def test_one_that_got_no_verdict_was_not_accepted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(store: Store, run_id: str) -> Any:
        # As where a sitting has ended between the last measurement and the verdict.
        return store.run(run_id), [each.model_copy(update={"verdict": None}) for each in store.attempts(run_id)]

    monkeypatch.setattr(module, "_read", read)
    loses = (candidate(6, ratio=3.0, cases={"ragged": 0.7}), "huge tiles")
    assert (await site.work(site.agent(loses))).device_gain_refused == "no verdict was given on it"


async def test_an_accepted_one_is_the_best_on_the_device_too(site: Site) -> None:
    record = await site.work(site.agent(FAST))
    assert (record.device_gain, record.device_gain_refused) == (record.gain, None)


async def test_nothing_right_is_nothing_on_the_device(site: Site) -> None:
    record = await site.work(site.agent(WRONG))
    assert (record.device_gain, record.device_gain_refused) == (None, None)


async def test_baselines_alone_are_measured(site: Site) -> None:
    record = await site.work("none")
    assert (record.outcome, record.why, record.speedup) == ("measured", None, None)
    assert record.baseline
    assert site.shared.machine.store.run(record.run_id or "").state == "open"


AGREES = MADE.model_copy(update={"form": "tritonbench", "on_gpu": True})
TIMES_ALONE = ["no-profile", "no-diagnosis"]


async def test_where_times_are_all_that_is_asked_of_a_baseline_there_is_no_run(site: Site) -> None:
    site.fails = AssertionError("no run is to begin")
    record = await site.work("none", AGREES, ablations=TIMES_ALONE)
    assert (record.outcome, record.why, record.run_id) == ("measured", None, None)
    assert [(case.case, case.device_us) for case in record.baseline] == [("large", 12.5)]
    site.alone = stopped(Kind.RUNTIME_ERROR, "an illegal access")
    record = await site.work("none", AGREES, ablations=TIMES_ALONE)
    assert (record.outcome, record.failure_kind) == ("baseline_failed", "runtime_error")


@pytest.mark.parametrize(
    ("agent", "made", "ablations"),
    [
        ("none", AGREES, TIMES_ALONE[:1]),
        ("none", AGREES.model_copy(update={"on_gpu": False}), TIMES_ALONE),
        ("none", AGREES.model_copy(update={"form": "kernelbench"}), TIMES_ALONE),
        ("tune", AGREES, TIMES_ALONE),
    ],
)
async def test_a_run_begins_where_more_is_asked_or_the_baseline_is_not_known_to_be_right(
    site: Site, agent: str, made: Adaptation, ablations: list[str]
) -> None:
    site.fails = stopped(Kind.TIMEOUT, "the run took too long")
    record = await site.work(agent, made, ablations=ablations)
    assert record.why == "the run took too long"


@pytest.mark.parametrize("agent", ["none", "tune"])
async def test_without_a_gpu_nothing_is_timed(site: Site, agent: str) -> None:
    site.files(BASELINE, task("made up", timed=False))
    record = await site.work(agent, gpu=None)
    assert (record.outcome, record.why, record.baseline) == ("untimed", "this machine has no GPU", [])


@pytest.mark.parametrize("kind", ["compile_error", "runtime_error", "timeout", "out_of_memory"])
async def test_a_baseline_that_does_not_run_is_told(site: Site, kind: str) -> None:
    site.files(candidate(1, kind=kind, message="no such thing in /home/me/kernels/sin.py"), task("made up"))
    record = await site.work("tune")
    assert (record.outcome, record.failure_kind) == ("baseline_failed", kind)
    assert record.why == "no such thing in sin.py"
    assert record.baseline == []


@pytest.mark.parametrize("kind", ["wrong", "rejected"])
async def test_a_baseline_that_nothing_can_judge_is_timed_all_the_same(site: Site, kind: str) -> None:
    site.files(candidate(1, kind=kind, message="it disagrees"), task("made up"))
    record = await site.work("tune")
    assert (record.outcome, record.failure_kind, record.why) == ("unjudged", kind, "it disagrees")
    assert [(case.case, case.device_us) for case in record.baseline] == [("large", 12.5)]
    site.alone = stopped(Kind.RUNTIME_ERROR)
    record = await site.work("tune")
    assert (record.outcome, record.failure_kind) == ("baseline_failed", kind)


async def test_a_task_that_can_not_judge_is_only_timed(site: Site) -> None:
    made = MADE.model_copy(update={"why_not": "3 elements differ", "kind": "wrong"})
    site.fails = AssertionError("nothing is to be optimized")
    record = await site.work("tune", made)
    assert (record.outcome, record.failure_kind, record.why) == ("unjudged", "wrong", "3 elements differ")
    assert record.baseline
    record = await site.work("tune", made, gpu=None)
    assert (record.outcome, record.baseline) == ("unjudged", [])
    site.alone = stopped(Kind.OUT_OF_MEMORY, "too large")
    record = await site.work("tune", made)
    assert (record.outcome, record.failure_kind) == ("baseline_failed", "out_of_memory")


async def test_a_case_in_which_it_does_not_run_when_it_is_timed_is_told(site: Site) -> None:
    site.files(BASELINE, "CASES = {'huge': {'n': 9}, 'large': {'n': 5}}\n")
    site.illegal = "huge"
    record = await site.work("tune", MADE.model_copy(update={"why_not": "3 elements differ", "kind": "wrong"}))
    assert (record.outcome, record.failure_kind) == ("unjudged", "wrong")
    assert record.why == "3 elements differ; case huge is not timed: runtime_error: an illegal access"
    assert [case.case for case in record.baseline] == ["large"]


@pytest.mark.parametrize("stage", ["agent", "export"])
async def test_what_is_no_kernels_fault_is_no_failure_of_its_baseline(site: Site, stage: str) -> None:
    site.fails = stopped(Kind.REJECTED, "there is no room", stage)
    record = await site.work("tune")
    assert (record.outcome, record.failure_kind, record.why) == ("failed", "rejected", "there is no room")


async def test_what_fails_after_the_baseline_leaves_its_times(site: Site) -> None:
    site.fails, site.in_the_middle = stopped(Kind.TIMEOUT, "the agent hung"), True
    record = await site.work("tune")
    assert (record.outcome, record.failure_kind) == ("failed", "timeout")
    assert [case.device_us for case in record.baseline] == [100.0, 100.0]


async def test_a_fault_of_ours_is_kept_and_costs_one_kernel(site: Site) -> None:
    site.fails = ZeroDivisionError("a made-up fault in /home/me/kernels/x.py")
    record = await site.work("tune")
    assert (record.outcome, record.failure_kind) == ("failed", "internal_error")
    assert record.why == "internal error (see error.txt): ZeroDivisionError: a made-up fault in x.py"
    assert "Traceback" in (site.place / "error.txt").read_text()
    site.fails = None
    assert (await site.work("none")).outcome == "measured"
    assert not (site.place / "error.txt").exists()


@pytest.mark.parametrize("kind", [Kind.UNAVAILABLE, Kind.CANCELLED])
@pytest.mark.parametrize("where", ["optimizing", "alone", "alone after it was wrong"])
async def test_what_no_kernel_can_help_is_no_record(site: Site, kind: Kind, where: str) -> None:
    made = MADE
    if where == "optimizing":
        site.fails = stopped(kind)
    elif where == "alone":
        site.alone, made = stopped(kind), MADE.model_copy(update={"why_not": "wrong: it differs", "kind": "wrong"})
    else:
        site.alone, site.fails = stopped(kind), stopped(Kind.WRONG)
    with pytest.raises(Stopped) as caught:
        await site.work("tune", made)
    assert caught.value.kind is kind
    assert site.folder.record("sin") is None


async def test_what_is_known_is_stored_beside_the_kernel(site: Site) -> None:
    await site.work("none")
    assert site.stored("device.json") == {"name": GPU}
    assert [case["device_us"] for case in site.stored("baseline.json")["own"]] == [100.0, 100.0]
    assert [finding["id"] for finding in site.stored("diagnosis.json")["findings"]] == ["V1"]
    assert not (site.place / "profile.json").exists()


async def test_stages_are_told(site: Site) -> None:
    await site.work(site.agent(FAST))
    assert "trying the winner on other shapes" in site.said
    assert all(line == line.strip() for line in site.said)


# Later sittings


async def test_an_agent_goes_on_with_a_run_whose_baseline_is_measured(site: Site) -> None:
    first = await site.work("none")
    second = await site.work(site.agent(FAST))
    assert (second.outcome, second.run_id) == ("gained", first.run_id)
    third = await site.work(site.agent(FAST))
    # That one is over.
    assert third.run_id != first.run_id


async def test_a_run_that_was_left_in_the_middle_is_gone_on_with(site: Site) -> None:
    record = await site.work("none")
    site.folder.forget("sin")
    begun = site.folder.begun("sin").model_copy(update={"run_id": record.run_id, "deaths": 1})
    site.folder.begin("sin", begun)
    assert (await site.work(site.agent(FAST))).run_id == record.run_id


@pytest.mark.parametrize("changed", ["kernel", "task"])
async def test_a_run_of_other_files_is_not_gone_on_with(site: Site, changed: str) -> None:
    first = await site.work("none")
    site.files(candidate(9) if changed == "kernel" else BASELINE, task("changed" if changed == "task" else "made up"))
    assert (await site.work("none")).run_id != first.run_id


@pytest.mark.parametrize(("passed_s", "goes_on"), [(40, True), (60, False)])
async def test_a_run_whose_time_is_nearly_over_is_not_gone_on_with(
    site: Site, monkeypatch: pytest.MonkeyPatch, passed_s: int, goes_on: bool
) -> None:
    first = await site.work("none")
    store = site.shared.machine.store
    budget = store.run(first.run_id or "").frozen.budget.model_copy(update={"wall_s": 100.0})
    original = type(store).run

    def limited(self: Store, run_id: str) -> Run:
        run = original(self, run_id)
        return run.model_copy(update={"frozen": run.frozen.model_copy(update={"budget": budget})})

    def elapsed_s(frozen: Frozen) -> float:
        return float(passed_s)

    monkeypatch.setattr(Store, "run", limited)
    monkeypatch.setattr(module, "elapsed_s", elapsed_s)
    assert ((await site.work("none")).run_id == first.run_id) is goes_on


async def test_what_was_won_before_is_gone_where_it_is_not_won_again(site: Site) -> None:
    await site.work(site.agent(FAST))
    site.folder.forget("sin")
    assert (await site.work(site.agent(SLOW))).outcome == "no_gain"
    assert not (site.place / "winner").exists()
