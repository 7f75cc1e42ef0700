"""Which adapter a path is for, what is said where there is none, and the command."""

import os
from pathlib import Path

import pytest

from tests.server.adapters.files import LINE, SCALE, bench_file
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.adapters.find import adapt, choices, made_of
from tritonforge.server.adapters.model import Form
from tritonforge.server.adapters.settle import settle
from tritonforge.server.cli import run
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings

BROKEN_ON_HALF = "\n\ndef checked(x):\n    assert x.dtype == torch.float32\n    return scaled(x)\n"
TWO = """\
import torch
results = {}
results["works"] = checked(torch.ones(64, device="cuda"))
results["fails"] = checked(torch.ones(64, device="cuda", dtype=torch.float16))
"""


@pytest.mark.parametrize(
    ("text", "form", "message"),
    [
        ("def f():\n    return 1\n", None, "it has f, which is none of the forms"),
        ("def f(:\n    pass\n", None, "is not valid Python"),
        ("def f():\n    return 1\n", Form.KERNELBENCH, "not what kernelbench files have"),
        (f"import torch\n{LINE}\nprint(torch.ones(2))\n", None, "calls no function of its kernel part"),
        ("def test_f():\n    pass\n", None, "call nothing that launches a @triton.jit kernel"),
    ],
)
def test_what_is_no_artefact_is_refused_with_what_was_found(
    tmp_path: Path, text: str, form: Form | None, message: str
) -> None:
    file = tmp_path / "file.py"
    file.write_text(text)
    with pytest.raises(Stopped, match=message) as stopped:
        adapt(file, form)
    assert stopped.value.kind is Kind.REJECTED
    assert "KernelBench problem (Model, get_inputs, get_init_inputs)" in str(stopped.value.problem.likely_fix)


def test_a_folder_without_a_task_yml_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    with pytest.raises(Stopped, match=r"a folder without a task\.yml; it has a\.py"):
        adapt(tmp_path)
    with pytest.raises(Stopped, match="there is no artefact file"):
        adapt(tmp_path / "b.py")


@pytest.mark.anyio
async def test_a_settled_task_has_its_cases_written_down_and_those_left_out_named(tmp_path: Path) -> None:
    tasks = choices(bench_file(tmp_path, TWO, SCALE + BROKEN_ON_HALF))
    async with Services(Settings(state_dir=tmp_path / "state")) as services:
        settled = await settle(services, tasks)
    assert settled.compiled
    assert settled.dropped.keys() == {"fails"}
    assert "_find()\n# END FOUND" not in settled.adapted.task_text
    assert "CASES = {'works': {'call': 'test 0', 'inputs': 'x 64 float32'}}" in settled.adapted.task_text
    assert any(words.startswith("left out: case fails (runtime_error") for words in settled.adapted.assumptions)


def test_the_command_writes_both_files_once_and_says_what_it_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tritonforge.server.cli._own_signals", lambda: None)
    words = ["adapt", str(bench_file(tmp_path)), "--out", str(tmp_path / "out"), "--no-check"]
    assert run(words) == 0
    said = capsys.readouterr().out
    assert "entry scaled, from tritonbench" in said
    assert "- seeds that the test sets are left out" in said
    assert "ENTRY = 'scaled'" in (tmp_path / "out" / "task.py").read_text()
    assert (tmp_path / "out" / "kernel.py").read_text().startswith("import torch")
    assert run(words) == 2
    assert "--force" in capsys.readouterr().err
    assert run(["adapt", str(tmp_path / "none.py")]) == 2


def test_a_file_that_is_nested_too_deeply_is_refused_and_has_no_hash(tmp_path: Path) -> None:
    file = tmp_path / "deep.py"
    file.write_text("x = " + "-" * 200_000 + "1\n")
    with pytest.raises(Stopped, match=r"is not valid Python: .*(nested|recursion)"):
        choices(file)
    assert made_of(file) is None


def test_a_pipe_has_no_hash(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert made_of(tmp_path / "pipe.py") is None
