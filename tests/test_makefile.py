"""How `make` installs torch, as `make -n` says."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def installs(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """What `make demo` would run where there is no environment yet."""
    command = ["make", "-n", "demo", f"VENV={folder / 'none'}", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)


def test_the_cpu_index_is_asked_for_torch_alone_and_beside_those_that_are_configured(tmp_path: Path) -> None:
    said = installs(tmp_path, "TORCH=cpu").stdout.replace("\\\n", " ")
    steps = [line for line in said.splitlines() if "pip install" in line]
    assert len(steps) == 2
    assert re.search(r"'torch==[\d.]+\+cpu' --no-deps --extra-index-url https://\S+/whl/cpu --retries 1 ", steps[0])
    assert "--index-url" not in steps[0].replace("--extra-index-url", "")
    assert "index-url" not in steps[1]
    assert "the CPU build" in said
    assert "TORCH=any" in said


@pytest.mark.parametrize("words", [(), ("TORCH=any",)])
def test_by_default_pips_own_index_decides(tmp_path: Path, words: tuple[str, ...]) -> None:
    said = installs(tmp_path, *words).stdout
    assert "'torch==" in said
    assert "+cpu" not in said
    assert "index-url" not in said
    assert "TORCH=cpu" in said


def test_another_torch_is_refused_with_what_is_allowed(tmp_path: Path) -> None:
    command = ["make", "demo", f"VENV={tmp_path / 'none'}", "TORCH=cuda"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "TORCH=cuda: it is any or cpu" in done.stdout
    assert not (tmp_path / "none").exists()
