"""A task is audited once: what is kept, under which key, and that what was kept refuses as well."""

from typing import Any, cast

import pytest

from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.facts import Audit
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.task import Task
from tritonforge.sandbox.workers import TaskWorker
from tritonforge.server.audits import KEPT, Audits, sound_audit

pytestmark = pytest.mark.anyio

SOUND = Audit(nondeterministic=[], outputs=[], impostors=[], exact=None, variants=[], skipped=[])
SPEC = Task.model_validate(
    {
        "entry": "entry", "title": None, "cases": {}, "hidden_cases": {}, "has_reference": True, "has_work": False,
        "in_place": [], "tolerances": {},
    }
)  # fmt: skip
TASK = Source("task text", "task.py", None)


class FakeTask:
    def __init__(self, found: Audit = SOUND) -> None:
        self.found = found
        self.seeds: list[int] = []

    async def audit(self, case: str, seed: int) -> Audit:
        self.seeds.append(seed)
        return self.found


async def ask(audits: Audits, task: FakeTask, case: str = "train", source: Source = TASK, **changed: Any) -> Audit:
    fields: dict[str, Any] = {"on_gpu": False, **changed}
    baseline = fields.pop("baseline", None)
    return await sound_audit(audits, case, SPEC, cast(TaskWorker, task), source, None, baseline, **fields)


async def test_a_case_is_audited_once():
    audits, task = Audits(), FakeTask()
    assert await ask(audits, task) is SOUND
    assert await ask(audits, task) is SOUND
    assert len(task.seeds) == 1


BASELINE = Source("baseline text", "baseline.py", None)


@pytest.mark.parametrize(
    "changed",
    [
        {"case": "large"},
        {"source": Source("another text", "task.py", None)},
        {"source": Source("task text", "task.py", "/folder/task.py")},
        {"on_gpu": True},
        {"parameters": {"n": 16}},
        {"baseline": BASELINE},
    ],
    ids=["case", "text", "folder", "device", "parameters", "baseline"],
)
async def test_anything_else_is_audited_anew(changed: dict[str, Any]):
    audits, task = Audits(), FakeTask()
    await ask(audits, task)
    await ask(audits, task, **changed)
    await ask(audits, task, **changed)
    assert len(set(task.seeds)) == 2


async def test_another_baseline_is_another_reference():
    audits, task = Audits(), FakeTask()
    for text in ("baseline text", "another text"):
        await ask(audits, task, baseline=Source(text, "baseline.py", None))
    assert len(task.seeds) == 2


async def test_a_task_that_proves_nothing_is_refused_from_memory_as_well():
    audits, task = Audits(), FakeTask(SOUND.model_copy(update={"impostors": ["zeros"]}))
    for _ in range(2):
        with pytest.raises(Stopped) as stopped:
            await ask(audits, task)
        assert stopped.value.kind is Kind.REJECTED
        assert "zeros" in stopped.value.problem.message
    assert len(task.seeds) == 1


async def test_the_oldest_audits_are_forgotten():
    audits, task = Audits(), FakeTask()
    for number in range(KEPT + 1):
        await ask(audits, task, f"case {number}")
    for number in range(KEPT, 0, -1):
        await ask(audits, task, f"case {number}")
    assert len(task.seeds) == KEPT + 1
    await ask(audits, task, "case 0")
    assert len(task.seeds) == KEPT + 2
