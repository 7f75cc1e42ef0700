"""diagnose_kernel over MCP, without a GPU, and with profiles that were made up."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp_types import TextResourceContents

from tests.diagnosis.made_up import profile
from tests.server.conftest import EXAMPLES, RESULT_LIMIT, content_of, fits, text_of, tools_of, without_gpu
from tritonforge.profiling.diagnosis.model import Diagnosis, Finding, Gain, Level, Rewrite
from tritonforge.profiling.diagnosis.rules import RULES
from tritonforge.profiling.ncu.model import LaunchProfile
from tritonforge.server.app import build_server
from tritonforge.server.mispredictions import FILE
from tritonforge.server.settings import Settings
from tritonforge.server.tools import diagnose_kernel
from tritonforge.server.tools.diagnose_report import appeared
from tritonforge.server.tools.profile_case import CaseProfile, Profiled

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]

MATMUL, SOFTMAX = EXAMPLES / "matmul", EXAMPLES / "softmax"
TOKENS_LIMIT = 2000
CHARACTERS_PER_TOKEN = 3.5
Diagnose = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("diagnose") / "state"


@pytest.fixture(scope="module")
async def client(state: Path) -> AsyncGenerator[Client]:
    async with Client(build_server(Settings(state_dir=state))) as client:
        yield client


@pytest.fixture(scope="module")
def diagnose(client: Client) -> Diagnose:
    """Call the tool for an example's kernel; its content, which has to fit its schema and a small context."""

    async def diagnose(folder: Path | None, kernel: str, **more: Any) -> dict[str, Any]:
        given = {} if folder is None else {"task": str(folder / "task.py"), "target": "h100"}
        path = kernel if folder is None else str(folder / f"{kernel}.py")
        result = await client.call_tool("diagnose_kernel", {"kernel": path, **given, **more})
        content = content_of(result)
        fits(content, (await tools_of(client))["diagnose_kernel"])
        assert len(text_of(result)) <= RESULT_LIMIT
        assert len(json.dumps(content)) - len(json.dumps(content["summary"])) <= TOKENS_LIMIT * CHARACTERS_PER_TOKEN
        return content

    return diagnose


@pytest.fixture(scope="module")
async def slow(diagnose: Diagnose) -> dict[str, Any]:
    """The matrix product with two warps and one stage, beside the better one."""
    return await diagnose(MATMUL, "baseline", verify_with=str(MATMUL / "candidate.py"))


@without_gpu
async def test_the_causes_are_named_with_their_lines_and_edits(slow: dict[str, Any]) -> None:
    (launch,) = slow["launches"]
    first, second = launch["findings"]
    text: list[str] = (MATMUL / "baseline.py").read_text().splitlines()
    assert (first["id"], first["level"], second["id"]) == ("T1", "compiler", "P1")
    assert "tl.dot(" in text[int(first["line"]) - 1]
    dot = text[int(first["line"]) - 1]
    assert first["excerpt"] == dot.strip()
    assert "+        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=4, num_stages=1," in first["diff"]
    assert first["predicted"] == [{"fact": "launch.mma", "now": "mma", "expected": "becomes", "to": "wgmma"}]
    assert (first["expected_pct"], first["at_most_pct"]) == (None, None)
    assert any("MMA version 3 acceleration not applied" in text for text in first["evidence"])


@without_gpu
async def test_each_level_tells_what_it_cost_or_why_it_was_left_out(slow: dict[str, Any]) -> None:
    ran = {level["level"]: level["ran"] for level in slow["levels"]}
    assert ran == {"source": True, "profile": False, "code": True, "compiler": True}
    assert "no NVIDIA GPU" in next(level["why"] for level in slow["levels"] if level["level"] == "profile")
    assert slow["gpu"] is None
    (unknown,) = slow["launches"][0]["unknown"]
    missing = slow["launches"][0]["not_looked_for"]
    assert f"{len(missing)} of {len(RULES)} known causes were not looked for. A profile needs a GPU" in unknown
    assert "T15" in missing
    assert "T15" not in slow["summary"]


@without_gpu
async def test_another_file_is_held_against_the_predictions(slow: dict[str, Any]) -> None:
    told = slow["verification"]
    assert told["verdict"] == "as_predicted"
    assert [(each["id"], each["after"], each["holds"]) for each in told["predictions"]] == [
        ("T1", "wgmma", True),
        ("P1", 0, True),
    ]
    assert [name.split()[0] for name in told["gone"]] == ["P1", "T1"]
    assert (told["left"], told["appeared"]) == ([], [])
    assert "run_correctness" in slow["next_step"]


@without_gpu
async def test_what_is_gone_is_not_told_again_as_if_it_were_there(slow: dict[str, Any]) -> None:
    title = slow["launches"][0]["findings"][0]["title"]
    line = slow["launches"][0]["findings"][0]["line"]
    assert f"1. T1 {title} (line {line}): gone in the other file\n" in slow["summary"]
    assert "edit: " not in slow["summary"]


@without_gpu
async def test_what_is_new_is_told_with_its_title_and_whether_it_matters(diagnose: Diagnose) -> None:
    told = await diagnose(MATMUL, "candidate", verify_with=str(MATMUL / "baseline.py"))
    new = {each["id"]: each for each in told["verification"]["appeared"]}
    assert set(new) == {"P1", "T1"}
    titles = {rule.id: rule.name for rule in RULES}
    for id, each in new.items():
        assert (each["title"], each["line"] is None) == (titles[id], False)
        assert each["matters"].startswith("the code shows it; its cost is unknown (not profiled")
        assert f"new: {id} {each['title']} (line {each['line']}): {each['matters']}" in told["summary"]


@pytest.mark.parametrize(
    ("level", "why", "said"),
    [
        (Level.SOURCE, "", "only the source suggests it"),
        (Level.CODE, "not profiled", "only where a profile shows"),
        (Level.CODE, "for information: saved nothing", "for information: saved nothing"),
    ],
)
def test_what_is_new_and_not_sure_says_so(level: Level, why: str, said: str) -> None:
    finding = Finding(
        id="I7", title="t", level=level, kernel="k", line=21, excerpt=None, evidence=[], cause="", falsified_by="",
        rewrite=Rewrite(recipe=""), predicted=[], gain=Gain(at_most_pct=None, why=why), risks=[],
    )  # fmt: skip
    told = Diagnosis(kernel="k", findings=[], hypotheses=[finding], done=None, unknown=[])
    assert said in appeared(told, finding).matters


@without_gpu
async def test_an_edit_that_changes_nothing_is_told(diagnose: Diagnose, state: Path) -> None:
    kernel = (MATMUL / "baseline.py").read_text()
    told = await diagnose(MATMUL, "baseline", verify_with=kernel + "\n# looks better\n")
    assert told["verification"]["verdict"] == "nothing_changed"
    assert "did not reach the compiler" in told["next_step"]
    assert "MMA version 3 acceleration not applied" in told["summary"]
    half = kernel.replace("num_stages=1", "num_stages=3").replace("num_warps=2", "num_warps=1")
    assert half != kernel
    told = (await diagnose(MATMUL, "baseline", verify_with=half))["verification"]
    assert [each["holds"] for each in told["predictions"]] == [False, True]
    # That fact did not change at all: the edit is another one's.
    assert not (state / FILE).exists()


@without_gpu
async def test_a_fact_that_changes_otherwise_than_predicted_is_recorded(diagnose: Diagnose, state: Path) -> None:
    two = (MATMUL / "baseline.py").read_text().replace("num_warps=2", "num_warps=4")
    more = two.replace(
        "acc = tl.dot(a, b, acc)", "acc = tl.dot(a, b, acc) + tl.sum(tl.load(a_tile + 1) * 1.0, 1)[:, None]"
    )
    assert more != two
    told = (await diagnose(None, two, task=str(MATMUL / "task.py"), target="h100", verify_with=more))["verification"]
    assert (told["verdict"], [each["after"] for each in told["predictions"]]) == ("not_as_predicted", [3])
    (kept,) = [json.loads(text) for text in (state / FILE).read_text().splitlines()]
    assert (kept["id"], kept["fact"], kept["now"], kept["after"]) == ("P1", "launch.sync_loads_beside_dots", 2, 3)


CONFIGURED = """
import torch, triton, triton.language as tl


@triton.jit
def k(x, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def entry(x):
    for block in (64, 32, 128):
        k[(4,)](x, x.numel(), B=block)


entry(torch.empty(1000, device="cuda"))
"""


@without_gpu
async def test_launches_of_one_kernel_are_held_against_their_own(diagnose: Diagnose, state: Path) -> None:
    known = (state / FILE).read_text() if (state / FILE).exists() else ""
    told = await diagnose(None, CONFIGURED, target="h100", verify_with=CONFIGURED + "# the same\n")
    assert told["verification"]["verdict"] == "nothing_changed"
    assert told["verification"]["gone"] == told["verification"]["appeared"] == []
    assert ((state / FILE).read_text() if (state / FILE).exists() else "") == known


@without_gpu
async def test_how_a_file_ended_after_its_launches_is_told(diagnose: Diagnose) -> None:
    told = await diagnose(None, CONFIGURED + "raise ValueError('later')\n", target="h100")
    assert (told["kind"], len(told["launches"])) == ("ok", 3)
    assert any("ended early at line" in note and "later" in note for note in told["notes"])


@without_gpu
async def test_nothing_unprintable_of_a_file_reaches_the_reader(diagnose: Diagnose) -> None:
    evil = (MATMUL / "baseline.py").read_text().replace("num_stages=1,", "num_stages=1,  # \x1b[31m \u202e")
    told = await diagnose(None, evil, task=str(MATMUL / "task.py"), target="h100")
    assert json.dumps(told, ensure_ascii=False).isprintable()
    assert told["launches"][0]["findings"][0]["diff"] is None


@without_gpu
async def test_a_file_that_does_not_compile_is_a_note(diagnose: Diagnose) -> None:
    broken = (MATMUL / "baseline.py").read_text().replace("tl.dot(a, b, acc)", "tl.dot(a, b, nothing)")
    told = await diagnose(MATMUL, "baseline", verify_with=broken)
    assert told["verification"] is None
    assert any("compile_error" in note and "line" in note for note in told["notes"])


@without_gpu
async def test_without_a_fault_only_a_profile_can_tell_more(diagnose: Diagnose) -> None:
    told = await diagnose(SOFTMAX, "candidate")
    (launch,) = told["launches"]
    assert launch["findings"] == []
    assert "only a profile tells" in launch["done"]


@without_gpu
async def test_the_source_alone_gives_hypotheses_only(diagnose: Diagnose) -> None:
    told = await diagnose(MATMUL, "baseline", depth="source")
    assert [level["ran"] for level in told["levels"]] == [True, False, False, False]
    assert all(launch["findings"] == [] and launch["done"] is None for launch in told["launches"])


@without_gpu
async def test_a_profile_that_is_asked_for_and_missing_is_told_with_its_remedy(diagnose: Diagnose) -> None:
    told = await diagnose(MATMUL, "baseline", depth="profile")
    assert told["kind"] == "unavailable"
    assert "H100-class GPU" in told["problem"]["likely_fix"]


async def test_all_of_it_is_an_artifact(client: Client, slow: dict[str, Any]) -> None:
    (uri,) = slow["artifacts"]
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    (launch,) = json.loads(content.text)["launches"]
    assert launch["diagnosis"]["findings"][0]["rewrite"]["example"]
    assert launch["facts"]["launch"]["mma"] == "mma"


async def test_what_can_not_be_diagnosed_is_refused_with_a_way_out(diagnose: Diagnose) -> None:
    unknown = await diagnose(MATMUL, "baseline", case="nowhere")
    assert (unknown["kind"], "square" in unknown["problem"]["message"] + unknown["next_step"]) == ("rejected", True)
    without_task = await diagnose(None, str(MATMUL / "baseline.py"), case="square")
    assert without_task["kind"] == "rejected"
    other = await diagnose(MATMUL, "baseline", target="a100-sxm")
    assert (other["kind"], "compile_kernel" in other["problem"]["likely_fix"]) == ("unsupported", True)
    nothing = await diagnose(None, "import torch\nx = torch.zeros(1)\n", target="h100")
    assert (nothing["kind"], "launched no Triton kernel" in nothing["problem"]["message"]) == ("rejected", True)


@without_gpu
async def test_probes_need_a_gpu_and_a_task_and_are_known_by_name(diagnose: Diagnose, client: Client) -> None:
    told = await diagnose(SOFTMAX, "candidate", probes=["no_math"], depth="source")
    assert told["probes"] is None
    assert any(
        "probes: nothing was timed (unavailable: this machine has no NVIDIA GPU" in note for note in told["notes"]
    )
    without_task = await diagnose(None, str(SOFTMAX / "candidate.py"), probes=[])
    assert without_task["kind"] == "rejected"
    refused = await client.call_tool("diagnose_kernel", {"kernel": "k", "task": "t", "probes": ["no_bytes"]})
    assert refused.is_error
    assert "idle_loads" in text_of(refused)


async def test_a_kernel_that_does_not_compile_says_so(diagnose: Diagnose, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text((MATMUL / "baseline.py").read_text().replace("tl.dot(a, b, acc)", "tl.dot(a, b, nothing)"))
    told = await diagnose(None, str(broken), task=str(MATMUL / "task.py"), target="h100")
    assert (told["kind"], told["problem"]["excerpt"] is not None) == ("compile_error", True)


def measured(monkeypatch: pytest.MonkeyPatch, launch: LaunchProfile, **more: Any) -> None:
    """Pretend that this was profiled."""

    async def measure() -> CaseProfile:
        return CaseProfile("train", [Profiled(launch, None, [], {})], 0, None, **more)

    async def found(*_: object, **__: object) -> tuple[Callable[[], Awaitable[CaseProfile]], None]:
        return measure, None

    async def gpu(_: object) -> str:
        return "NVIDIA H200"

    monkeypatch.setattr(diagnose_kernel, "how_profiled", found)
    monkeypatch.setattr(diagnose_kernel, "_gpu", gpu)


BYTES = 2 * 16384 * 4096 * 2


async def test_at_the_floor_nothing_is_left_to_win_and_no_deeper_level_is_asked(
    diagnose: Diagnose, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = profile(kernel="softmax_kernel", grid=(16384, 1, 1), duration_us=BYTES / 4.8e6 * 1.05, dram_pct=95.0)
    measured(monkeypatch, fast, compulsory_bytes=float(BYTES))
    told = await diagnose(SOFTMAX, "candidate", target="h200")
    (launch,) = told["launches"]
    assert "Nothing to win: at 95 % of what this device can do" in launch["done"]
    assert launch["floor_pct"] == pytest.approx(95.2, abs=0.1)
    assert [level["ran"] for level in told["levels"]] == [True, True, False, False]
    assert "nothing is left to win" in told["levels"][2]["why"]
    deeper = await diagnose(SOFTMAX, "candidate", target="h200", depth="compiler")
    assert all(level["ran"] for level in deeper["levels"])


async def test_far_from_the_floor_the_code_is_looked_at(diagnose: Diagnose, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = profile(kernel="softmax_kernel", grid=(16384, 1, 1), duration_us=BYTES / 4.8e6 * 4, dram_pct=25.0)
    measured(monkeypatch, slow, compulsory_bytes=float(BYTES))
    told = await diagnose(SOFTMAX, "baseline", target="h200")
    (launch,) = told["launches"]
    assert [level["ran"] for level in told["levels"]][:3] == [True, True, True]
    assert launch["floor_pct"] == pytest.approx(25.0, abs=0.1)
    assert launch["duration_us"] == pytest.approx(BYTES / 4.8e6 * 4, abs=0.01)
    assert all(finding["at_most_pct"] <= 75.1 for finding in launch["findings"])


async def test_a_launch_that_was_not_compiled_here_is_named(
    diagnose: Diagnose, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch, profile(kernel="softmax_kernel", grid=(3, 1, 1), duration_us=10.0))
    told = await diagnose(SOFTMAX, "candidate", target="h200")
    assert any("another configuration" in note for note in told["notes"])
