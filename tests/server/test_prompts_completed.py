"""Completions of arguments and of variables of resource templates, in both protocol eras."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Literal

import pytest
from mcp.client import Client
from mcp_types import PromptReference, ResourceTemplateReference

from tests.server.runs.in_store import begun
from tests.server.runs.kept import Kept, store_in
from tests.server.runs.test_store_broken import in_database
from tritonforge.profiling.hardware.catalog import target_names
from tritonforge.server.app import build_server
from tritonforge.server.completions import cases_of, matching
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio

PROMPT = PromptReference(type="ref/prompt", name="judge_candidate")
RUN = ResourceTemplateReference(type="ref/resource", uri="tritonforge://runs/{run_id}/attempts/{number}")
TASK = 'CASES: dict = {"large": {"n": 8}, "ragged": {"n": 7}}\nHIDDEN_CASES = {"secret": {"n": 3}}\n'


@pytest.fixture(params=["legacy", "auto"])
async def client(request: pytest.FixtureRequest, settings: Settings) -> AsyncGenerator[Client]:
    mode: Literal["legacy", "auto"] = request.param
    async with Client(build_server(settings), mode=mode) as connected:
        yield connected


async def completed(
    client: Client,
    name: str,
    typed: str = "",
    ref: PromptReference | ResourceTemplateReference = PROMPT,
    **known: str,
) -> list[str]:
    result = await client.complete(ref, {"name": name, "value": typed}, context_arguments=known or None)
    return result.completion.values


async def test_that_it_completes_is_announced(client: Client) -> None:
    capabilities = client.server_capabilities
    assert capabilities is not None
    assert capabilities.completions is not None


@pytest.mark.parametrize("ref", [PROMPT, RUN], ids=["prompt", "resource"])
async def test_runs_are_offered_newest_first(
    client: Client, settings: Settings, ref: PromptReference | ResourceTemplateReference
) -> None:
    store = store_in(settings.state_dir)
    for number, run_id in enumerate(["sin-000001", "softmax-000002", "sin-000003"]):
        begun(store, run_id, created_at=f"2026-11-30T12:00:0{number}.000+00:00")
    assert await completed(client, "run_id", ref=ref) == ["sin-000003", "softmax-000002", "sin-000001"]
    assert await completed(client, "run_id", "SIN", ref=ref) == ["sin-000003", "sin-000001"]
    assert await completed(client, "run_id", "000002", ref=ref) == ["softmax-000002"]
    assert await completed(client, "run_id", "rope", ref=ref) == []
    in_database(store, "UPDATE runs SET record = '{}' WHERE run_id = 'sin-000003'")
    assert await completed(client, "run_id", ref=ref) == ["softmax-000002", "sin-000001"]


async def test_gpus_are_offered_by_their_names(client: Client) -> None:
    offered = await completed(client, "target")
    assert offered == list(target_names())[:100]
    assert (await completed(client, "target", "h2"))[:1] == ["h200"]


@pytest.mark.parametrize("name", ["attempt", "number"])
async def test_attempts_of_the_run_that_was_chosen_are_offered_newest_first(
    client: Client, settings: Settings, name: str
) -> None:
    kept = Kept(store_in(settings.state_dir))
    kept.attempt("x = 1\n")
    assert await completed(client, name, run_id=kept.run_id) == ["1", "0"]
    assert await completed(client, name) == []
    assert await completed(client, name, run_id="sin-000000") == []


async def test_kernels_tasks_and_entries_of_runs_are_offered(client: Client, settings: Settings) -> None:
    store = store_in(settings.state_dir)
    Kept(store, "a-000001", kernel_shown_as="/k/a.py", task_shown_as="/t/a.py")
    Kept(store, "b-000002", kernel_shown_as="<source>", task_shown_as="/t/a.py")
    assert await completed(client, "kernel") == ["/k/a.py"]
    assert await completed(client, "task") == ["/t/a.py"]
    assert await completed(client, "entry") == ["entry"]


async def test_cases_come_from_the_run_or_the_task_and_hidden_ones_from_neither(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "task.py"
    path.write_text(TASK)
    kept = Kept(store_in(settings.state_dir), task=TASK)
    assert await completed(client, "case", run_id=kept.run_id) == ["a"]
    assert await completed(client, "case", task=str(path)) == ["large", "ragged"]
    assert await completed(client, "case", "r", task=str(path)) == ["ragged", "large"]
    assert await completed(client, "case") == []
    assert await completed(client, "case", task=str(tmp_path / "none.py")) == []


async def test_what_nobody_can_know_is_completed_with_nothing(client: Client, settings: Settings) -> None:
    assert await completed(client, "notes", "x") == []
    assert await completed(client, "run_id") == []
    assert not (settings.state_dir / "runs").exists()


@pytest.mark.parametrize(
    ("task", "cases"),
    [
        (TASK, ["large", "ragged"]),
        ('CASES = {"a": {}, **more, 3: {}}\n', ["a"]),
        ("CASES = made()\n", []),
        ("CASES = {\n", []),
        ("", []),
        ("raise SystemExit\nCASES = {'a': {}}\n", ["a"]),
    ],
)
def test_cases_are_read_from_a_task_that_is_never_run(task: str, cases: list[str]) -> None:
    assert cases_of(task) == cases


def test_what_begins_so_comes_before_what_holds_it() -> None:
    assert matching(["sin-h2", "h200", "H20", "h200", "a100"], "h2") == ["h200", "H20", "sin-h2"]
