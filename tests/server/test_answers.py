"""What tools answer through an in-memory client, in detail; `test_answers_of_all` has what holds of every answer."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp_types import CallToolResult, TextResourceContents

from tests.server.conftest import EXAMPLES, SIN, content_of, text_of, without_gpu
from tritonforge.server.app import build_server
from tritonforge.server.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]

KERNEL, TASK = Path(SIN["kernel"]).read_text(), Path(SIN["task"]).read_text()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(state_dir=tmp_path_factory.mktemp("app") / "state")


# What the tools found, once for all the tests below: the first workers of a server take seconds to start.


@pytest.fixture(scope="module")
async def results(settings: Settings) -> dict[str, CallToolResult]:
    """Results by name: three calls at the same time, then two more that fail, then one after them, of one server."""
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "hardware": ("hardware_spec", {"target": "h100", "detail": True}),
        "compiled": ("compile_kernel", {**SIN, "kernel": str(EXAMPLES / "sin" / "baseline.py"), "target": "h100"}),
        "checked": ("run_correctness", {**SIN, "seeds": 1}),
    }
    failing: dict[str, tuple[str, dict[str, Any]]] = {
        "compile_error": ("compile_kernel", {**SIN, "kernel": KERNEL.replace("tl.sin(x)", "tl.sin(y)")}),
        "wrong": ("run_correctness", {**SIN, "kernel": KERNEL.replace("tl.sin(x)", "tl.cos(x)"), "seeds": 1}),
    }
    after: dict[str, tuple[str, dict[str, Any]]] = {
        "unknown_case": ("compile_kernel", {"kernel": KERNEL, "task": TASK, "cases": ["smal"]}),
    }
    found: dict[str, CallToolResult] = {}
    async with Client(build_server(settings)) as client:

        async def run(name: str, tool: str, arguments: dict[str, Any]) -> None:
            found[name] = await client.call_tool(tool, arguments)

        for together in (calls, failing, after):
            async with anyio.create_task_group() as group:
                for name, (tool, arguments) in together.items():
                    group.start_soon(run, name, tool, arguments)
        uri = content_of(found["compiled"])["artifacts"][0]
        (artifact,) = (await client.read_resource(uri)).contents
        assert isinstance(artifact, TextResourceContents)
        assert "tt.func public @sin_kernel" in artifact.text
    return found


async def test_the_target_is_described_with_its_peaks_and_what_works_here(results: dict[str, CallToolResult]) -> None:
    content = content_of(results["hardware"])
    assert content["kind"] == "ok"
    assert content["target"]["peak_bf16_dense_flops_per_s"] == 989.4e12
    assert content["target"]["ridge_flops_per_byte"] == pytest.approx(989.4e12 / 3.35e12, abs=0.1)
    assert content["details"]["data_sheet"]["source"]
    for said in ("132 SMs", "3.35 TB/s", "bf16/fp16 989.4", "232,448 B shared memory", "295 bf16 operations"):
        assert said in content["summary"]
    interpreter = content["checks"][0]
    assert (interpreter["name"], interpreter["status"]) == ("worker interpreter", "ok")
    assert interpreter["detail"] in content["summary"]


@pytest.mark.usefixtures("sandbox")
async def test_the_layers_of_isolation_are_told_in_text_and_in_structure(results: dict[str, CallToolResult]) -> None:
    content, text = content_of(results["hardware"]), text_of(results["hardware"])
    (isolation,) = [check for check in content["checks"] if check["name"] == "isolation"]
    assert isolation["detail"].startswith("sandboxed")
    assert f"{isolation['status']}: isolation: {isolation['detail']}" in text
    for layer in ("processes", "files", "writing", "network", "capabilities", "new privileges", "user"):
        assert f"{layer}: " in isolation["detail"]


async def test_a_compiled_kernel_comes_with_its_facts_and_the_first_thing_to_mend(
    results: dict[str, CallToolResult],
) -> None:
    content = content_of(results["compiled"])
    assert (content["kind"], content["target"], content["entry"]) == ("ok", "h100-sxm", "sin")
    large, small = content["launches"]
    assert (large["case"], small["case"]) == ("large", "small")
    assert large["grid"] == [(1 << 24) // 4, 1, 1]
    assert large["spill_bytes"] == 0
    assert large["access_widths_bytes"] == [4]
    assert large["code_hash"] == small["code_hash"]
    assert large["line"] == 12
    assert [observation["id"] for observation in content["observations"]] == ["V6"]
    assert content["next_step"].startswith("Address V6 first")
    for said in (f"{large['registers']} registers", "0 B spilled", "occupancy 100 %", "V6", large["code_hash"]):
        assert said in content["summary"]


async def test_a_right_kernel_is_told_where_it_was_checked(results: dict[str, CallToolResult]) -> None:
    content = content_of(results["checked"])
    assert (content["kind"], content["reference"]) == ("ok", "task")
    assert content["device"] in {"interpreter", "cuda:0"}
    case = next(case for case in content["cases"] if case["case"] == "small")
    assert (case["kind"], case["elements"], case["wrong_elements"], len(case["seeds"])) == ("ok", 4096, 0, 1)
    assert "4,096 elements" in content["summary"]


@without_gpu
async def test_a_check_without_a_gpu_says_that_it_was_the_interpreter(results: dict[str, CallToolResult]) -> None:
    content = content_of(results["checked"])
    assert content["device"] == "interpreter"
    assert "interpreter" in content["summary"]
    assert "not on a GPU" in content["summary"]
    assert "on a GPU" in content["next_step"]


async def test_a_compile_error_names_the_line_and_shows_it(results: dict[str, CallToolResult]) -> None:
    content, text = content_of(results["compile_error"]), text_of(results["compile_error"])
    assert content["kind"] == "compile_error"
    assert content["launches"] == []
    problem = content["problem"]
    line = 1 + KERNEL[: KERNEL.index("tl.sin(x)")].count("\n")
    assert (problem["stage"], problem["file"], problem["line"]) == ("compile", "<source>", line)
    assert "tl.sin(y)" in problem["excerpt"]
    assert "y is not defined" in content["summary"]
    assert f"line {line}" in content["summary"]
    assert problem["excerpt"] in text
    assert problem["likely_cause"] in text


async def test_a_wrong_kernel_is_told_where_it_is_worst(results: dict[str, CallToolResult]) -> None:
    content = content_of(results["wrong"])
    assert content["kind"] == "wrong"
    case = content["cases"][-1]
    assert case["kind"] == "wrong"
    assert 0 < case["wrong_elements"] <= case["elements"]
    assert case["max_abs_error"] > 1e-5
    assert content["problem"]["stage"] == "compare"
    assert "worst at" in content["summary"]
    assert f"expected {case['worst_expected']}" in content["summary"]


async def test_an_unknown_case_is_answered_with_the_cases_also_after_failures(
    results: dict[str, CallToolResult],
) -> None:
    content = content_of(results["unknown_case"])
    assert content["kind"] == "rejected"
    assert "Did you mean 'small'?" in content["next_step"]
    assert "large" in content["next_step"]
