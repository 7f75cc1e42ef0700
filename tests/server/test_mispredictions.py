"""Predictions that did not come true are kept once each, in bounds."""

import json
from pathlib import Path

import pytest

from tritonforge.server import mispredictions
from tritonforge.server.mispredictions import FILE, Misprediction, record


def missed(kernel: str = "kernel", after: int = 3) -> Misprediction:
    return Misprediction(
        id="P1", kernel=kernel, fact="launch.sync_loads_beside_dots", now=2, expected="becomes", to=0, after=after,
        target="h100-sxm", before_sha256="0" * 64, after_sha256="1" * 64,
    )  # fmt: skip


def kept(folder: Path) -> list[tuple[str, int]]:
    lines = [json.loads(line) for line in (folder / FILE).read_text().splitlines()]
    return [(line["kernel"], line["after"]) for line in lines]


def test_each_is_kept_once(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "state"
    assert record(folder, [missed(), missed("ä, b"), missed()])
    assert record(folder, [missed("ä, b"), missed(after=4)])
    assert kept(folder) == [("kernel", 3), ("ä, b", 3), ("kernel", 4)]


def test_a_full_file_or_a_folder_that_can_not_be_made_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert record(tmp_path, [missed()])
    monkeypatch.setattr(mispredictions, "BYTES_LIMIT", (tmp_path / FILE).stat().st_size + 10)
    assert not record(tmp_path, [missed(after=4)])
    assert kept(tmp_path) == [("kernel", 3)]
    assert not record(tmp_path / FILE, [missed()])
