"""The process that works on a campaign's kernels, as its parent sees it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.conftest import DEADLINE_S
from tritonforge.server.campaign.entries import entries
from tritonforge.server.campaign.events import Finished, Preparing, parse
from tritonforge.server.campaign.folder import CampaignFolder
from tritonforge.server.campaign.model import Plan
from tritonforge.server.settings import Settings


@pytest.fixture
def folder(tmp_path: Path) -> CampaignFolder:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "nothing.py").write_text("x = 1\n")
    folder = CampaignFolder(tmp_path / "campaign")
    folder.freeze(Plan(folder=kernels, agent="none"), entries(kernels), resume=False)
    return folder


def worker(folder: CampaignFolder) -> "subprocess.Popen[bytes]":
    settings = Settings(state_dir=folder.state).model_dump_json()
    words = [sys.executable, "-m", "tritonforge.server.campaign.worker", str(folder.path), settings, "prepare"]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_it_tells_what_it_does_in_lines_and_ends_when_nothing_is_left(folder: CampaignFolder) -> None:
    with worker(folder) as process:
        assert process.stdout is not None
        events = [parse(line) for line in process.stdout]
        assert process.wait(DEADLINE_S) == 0
    first, last = events
    assert first == Preparing(name="nothing")
    assert isinstance(last, Finished)
    assert last.record == folder.record("nothing")
    assert last.record.outcome == "not_loaded"


def test_it_ends_with_its_parent(folder: CampaignFolder) -> None:
    with worker(folder) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 128 + 15
