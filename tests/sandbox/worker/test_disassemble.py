# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""Disassemblers that do not do their work: what is told of them, and that none is left."""

import importlib
import os
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def disassemble(worker: ModuleType) -> ModuleType:
    return importlib.import_module("tritonforge_worker.disassemble")


def run(disassemble: ModuleType, folder: Path, script: str, deadline: float):
    return disassemble.Disassembly(["/bin/sh", "-c", script], str(folder / "out.sass"), deadline)


def test_lines_and_inlined_frames_are_asked_for_and_no_analysis(disassemble: ModuleType) -> None:
    assert disassemble.command("nvdisasm", "x.cubin") == ["nvdisasm", "-gi", "-c", "-ndf", "x.cubin"]


def test_what_it_prints_is_the_result(disassemble: ModuleType, tmp_path: Path) -> None:
    found = run(disassemble, tmp_path, "echo text; echo warning >&2", float("inf"))
    assert found.result() == (b"text\n", None)
    found.end()


def test_a_failure_is_told_in_its_own_words(disassemble: ModuleType, tmp_path: Path) -> None:
    found = run(disassemble, tmp_path, "echo half; echo 'fatal:  no' >&2; exit 2", float("inf"))
    assert found.result() == (None, "nvdisasm ended with exit code 2: fatal: no")
    found.end()


def test_one_that_takes_too_long_is_killed(disassemble: ModuleType, tmp_path: Path) -> None:
    found = run(disassemble, tmp_path, "exec cat /dev/zero > /dev/null", 0.0)
    text, reason = found.result()
    assert text is None
    assert "took longer than" in reason
    found.end()
    with pytest.raises(ProcessLookupError):
        os.kill(found._process.pid, 0)


def test_too_much_text_is_not_taken(disassemble: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassemble, "TEXT_BYTES", 3)
    found = run(disassemble, tmp_path, "echo text", float("inf"))
    text, reason = found.result()
    assert text is None
    assert "wrote more than" in reason
    found.end()
