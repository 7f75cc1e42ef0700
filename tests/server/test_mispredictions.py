"""Predictions that did not come true are kept once each, in bounds."""

import json
from pathlib import Path
from typing import Any

import pytest

from tritonforge.server import mispredictions
from tritonforge.server.mispredictions import FILE, GainMisprediction, Misprediction, record


def missed(kernel: str = "kernel", after: int = 3) -> Misprediction:
    return Misprediction(
        id="P1", kernel=kernel, fact="launch.sync_loads_beside_dots", now=2, expected="becomes", to=0, after=after,
        target="h100-sxm", before_sha256="0" * 64, after_sha256="1" * 64,
    )  # fmt: skip


def too_slow(**fields: Any) -> GainMisprediction:
    known: dict[str, Any] = {
        "id": "P1", "kernel": "kernel", "case": "a", "came": "less", "expected_pct": 20.0, "at_most_pct": 40.0,
        "seen_pct": 1.0, "seen_low_pct": 0.5, "seen_high_pct": 1.5, "device": "NVIDIA H200", "triton": "3.6.0",
        "parent_identity": "0" * 64, "identity": "1" * 64, "run_id": "sin-1a2b3c", "attempt": 1,
    }  # fmt: skip
    return GainMisprediction.model_validate({**known, **fields})


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


def test_of_one_code_rule_and_device_a_gain_is_kept_once_however_often_it_is_measured(tmp_path: Path) -> None:
    assert record(tmp_path, [too_slow(), missed(), too_slow(seen_pct=1.1, run_id="sin-000000")])
    assert record(tmp_path, [too_slow(attempt=2, came="more", triton="3.7.0"), missed()])
    assert record(tmp_path, [too_slow(id="V1"), too_slow(device="NVIDIA H100"), too_slow(identity="2" * 64)])
    lines = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [(line["id"], line.get("device"), line.get("identity", "")[:1]) for line in lines] == [
        ("P1", "NVIDIA H200", "1"),
        ("P1", None, ""),
        ("V1", "NVIDIA H200", "1"),
        ("P1", "NVIDIA H100", "1"),
        ("P1", "NVIDIA H200", "2"),
    ]


def test_what_is_no_entry_stays_by_itself(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[]\n{" + '"at": "2026-11-30", "fact"')  # cut off
    assert record(tmp_path, [missed()])
    assert json.loads((tmp_path / FILE).read_text().splitlines()[2])["fact"] == missed().fact
