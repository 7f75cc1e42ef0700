"""Exports: exact files, a patch that applies, a record that tells no secrets, and nothing overwritten unasked."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.profiling.optimization.made_up import evidence, failed
from tests.server.runs.kept import BASELINE_TEXT, RUN_ID, SECRET, TASK_TEXT, Kept, measured, store_in
from tritonforge import __version__
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.runs.export import RECORD, digest, export, file_name, patch
from tritonforge.server.runs.store import Store
from tritonforge.server.runs.verification import VerificationRecord

FASTER = "# one pass\ndef entry(x):\n    return +x\n"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    kept = store_in(tmp_path / "state")
    yield kept
    kept.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


def refused(kind: Kind, *arguments: Any, **options: Any) -> Stopped:
    with pytest.raises(Stopped) as stopped:
        export(*arguments, **options)
    assert stopped.value.kind is kind
    return stopped.value


@pytest.mark.parametrize(
    "text",
    [
        FASTER,
        FASTER.rstrip("\n"),
        "\n\n" + FASTER,
        FASTER.replace("\n", "\r\n"),
        "# größer\n" + FASTER,
        "\f\n" + FASTER,
    ],
)
def test_the_kernel_is_exactly_the_submitted_text_with_what_it_was_judged_by(
    store: Store, folder: Path, text: str
) -> None:
    Kept(store).attempt(text, measured(1.3), accepted=True)
    exported = export(store, RUN_ID, folder)
    assert (folder / "entry.py").read_bytes() == text.encode()
    assert (folder / "baseline.py").read_bytes() == BASELINE_TEXT.encode()
    assert (folder / "task.py").read_bytes() == TASK_TEXT.encode()
    assert {path.name for path in exported.paths} == {path.name for path in folder.iterdir()}
    record = VerificationRecord.model_validate_json((folder / RECORD).read_bytes())
    assert record == exported.record
    for file in record.files():
        assert digest((folder / file.name).read_bytes()) == file.sha256
    assert record.kernel.sha256 == store.attempt(RUN_ID, 1).kernel_sha256


TEXTS = {
    "one line": ("a\nb\nc\n", "a\nB\nc\n"),
    "no newline at the end of the kernel": ("a\nb\n", "a\nb"),
    "no newline at the end of the baseline": ("a\nb", "a\nb\n"),
    "no newline at either end": ("a\nb", "a\nc"),
    "a new last line, no newline before": ("a", "a\nb"),
    "carriage returns": ("a\r\nb\r\nc\r\n", "a\r\nB\r\nc\r\n"),
    "other line ends": ("a\fb\u2028c\vd\n", "a\fB\u2028c\vd\ne\n"),
    "lines that look like a patch": ("--- a/x\n+++ b/x\n", "--- a/x\n-x\n"),
    "all of it": ("a\n" * 50, "b\n" * 70),
    "far apart": ("\n".join(map(str, range(99))), "\n".join(map(str, [7, *range(90), 1]))),
}
COMMANDS = {"git": ["git", "apply"], "patch": ["patch", "-p1", "-i"]}


@pytest.mark.parametrize("tool", COMMANDS)
@pytest.mark.parametrize("name", TEXTS)
def test_the_patch_makes_the_kernel_of_the_baseline(tmp_path: Path, tool: str, name: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"there is no {tool} here")
    before, after = TEXTS[name]
    (tmp_path / "baseline.py").write_bytes(before.encode())
    (tmp_path / "entry.patch").write_bytes(patch(before, after).encode())
    # Outside of any repository that the folder may lie in.
    done = subprocess.run(
        [*COMMANDS[tool], "entry.patch"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PATH": str(Path(str(shutil.which(tool))).parent), "GIT_DIR": "/dev/null"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "baseline.py").read_bytes() == after.encode()


def test_the_record_says_what_was_measured_and_nothing_of_hidden_cases_but_their_hash(
    store: Store, folder: Path
) -> None:
    kept = Kept(store)
    kept.attempt("def entry(x):\n    return -x\n", failed(), strategy="dead end")
    kept.attempt("def entry(x):\n    return 1 * x\n", measured(1.2), strategy="wider loads", accepted=True)
    kept.attempt(FASTER, measured(1.1, against=2, to_baseline=1.32), strategy="fewer passes", parent=2, accepted=True)
    record = export(store, RUN_ID, folder).record
    assert SECRET not in (folder / RECORD).read_text()
    assert (record.hidden.count, record.hidden.sha256) == (1, kept.frozen.hidden_sha256)
    assert (record.attempt, record.accepted, record.run_id, record.tool_version) == (3, True, RUN_ID, __version__)
    assert [(step.number, step.strategy, step.ratio) for step in record.lineage] == [
        (0, "the baseline", None),
        (2, "wider loads", 1.2),
        (3, "fewer passes", 1.32),
    ]
    assert [(timing.against, timing.ratio) for timing in record.timings] == [(0, 1.32), (2, 1.1)]
    assert [case.case for timing in record.timings for case in timing.cases] == ["a", "a"]
    assert record.confirmation is not None
    assert record.confirmation.timing is not None
    assert (record.confirmation.timing.against, record.confirmation.timing.ratio) == (2, 1.1)
    assert [(code.case, code.code_hash) for code in record.code] == [("a", "0" * 16)]
    assert "1.32x the speed of the baseline (95 % interval 1.316 to 1.324)" in " ".join(record.checked)
    assert record.not_checked == []


def test_a_run_that_accepted_nothing_exports_only_the_attempt_that_is_named(store: Store, folder: Path) -> None:
    Kept(store, gpu=None).attempt(FASTER, evidence())
    stopped = refused(Kind.REJECTED, store, RUN_ID, folder)
    assert stopped.problem.message == f"run {RUN_ID} has accepted nothing, so the attempt to export must be named"
    assert stopped.problem.likely_fix == "Finished attempts: 1. Name one of them, such as --attempt 1."
    assert not folder.exists()
    record = export(store, RUN_ID, folder, attempt=1).record
    assert (folder / "entry.py").read_text() == FASTER
    assert not record.accepted
    assert record.not_checked == [
        "The run did not accept this attempt: no faster.",
        "Triton's interpreter checks the arithmetic, not races or the compiler.",
        "Nothing was timed: there is no GPU.",
        "There was no second look with fresh seeds and hidden cases.",
    ]


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "is the baseline itself"), (2, "is running, not finished"), (3, "has no attempt 3"), (-1, "no attempt -1")],
)
def test_an_attempt_that_can_not_be_exported_is_refused_with_those_that_can(
    store: Store, folder: Path, number: int, said: str
) -> None:
    kept = Kept(store)
    kept.attempt(FASTER, measured(1.3), accepted=True)
    kept.left_behind("def entry(x):\n    return x * 2\n")
    stopped = refused(Kind.REJECTED, store, RUN_ID, folder, number)
    assert said in stopped.problem.message
    assert stopped.problem.likely_fix == "Finished attempts: 1."


def test_a_run_without_candidates_has_nothing_to_export(store: Store, folder: Path) -> None:
    Kept(store)
    assert "no finished attempt" in refused(Kind.REJECTED, store, RUN_ID, folder).problem.message


def test_a_duplicate_has_the_standing_of_the_attempt_that_it_repeats(store: Store, folder: Path) -> None:
    kept = Kept(store)
    kept.attempt(FASTER, measured(1.3), accepted=True)
    kept.attempt("# again\n" + FASTER, measured(1.3), duplicate_of=1, verdict=None, counted=False)
    record = export(store, RUN_ID, folder, 2).record
    assert (record.attempt, record.duplicate_of, record.accepted) == (2, 1, True)


def test_a_failed_attempt_is_exported_with_its_failure(store: Store, folder: Path) -> None:
    Kept(store).attempt(FASTER, failed())
    record = export(store, RUN_ID, folder, 1).record
    assert record.checked == []
    assert "Its evaluation ended in wrong: it is wrong." in record.not_checked


def test_an_export_is_written_again_over_itself_and_over_nothing_else(store: Store, folder: Path) -> None:
    kept = Kept(store)
    kept.attempt(FASTER, measured(1.3), accepted=True)
    export(store, RUN_ID, folder)
    kept.attempt("def entry(x):\n    return x ** 1\n", measured(1.4), accepted=True)
    export(store, RUN_ID, folder)
    assert (folder / "entry.py").read_text() == "def entry(x):\n    return x ** 1\n"
    (folder / "entry.py").write_text("my own\n")
    stopped = refused(Kind.REJECTED, store, RUN_ID, folder)
    assert stopped.problem.message == f"{folder / 'entry.py'} was changed since it was exported"
    assert (folder / "entry.py").read_text() == "my own\n"
    export(store, RUN_ID, folder, force=True)
    assert (folder / "entry.py").read_text() == "def entry(x):\n    return x ** 1\n"


@pytest.mark.parametrize("name", ["task.py", "entry.py", "entry.patch", RECORD])
def test_a_file_that_was_there_before_is_in_the_way(store: Store, folder: Path, name: str) -> None:
    Kept(store).attempt(FASTER, measured(1.3), accepted=True)
    folder.mkdir()
    (folder / name).write_text("{}")
    stopped = refused(Kind.REJECTED, store, RUN_ID, folder)
    assert stopped.problem.message == f"{folder / name} was not written by an export of this run"
    assert [path.name for path in folder.iterdir()] == [name]
    export(store, RUN_ID, folder, force=True)
    assert (folder / name).read_text() != "{}"


def test_another_runs_export_is_not_replaced(store: Store, folder: Path) -> None:
    for run_id in ("other-000000", RUN_ID):
        Kept(store, run_id).attempt(FASTER, measured(1.3), accepted=True)
    export(store, "other-000000", folder)
    assert "another run, other-000000" in refused(Kind.REJECTED, store, RUN_ID, folder).problem.message


def test_equal_texts_have_no_patch_and_the_one_before_goes(store: Store, folder: Path) -> None:
    kept = Kept(store)
    kept.attempt(FASTER, measured(1.3), accepted=True)
    kept.attempt(BASELINE_TEXT, evidence(), duplicate_of=0)
    export(store, RUN_ID, folder)
    assert (folder / "entry.patch").exists()
    assert export(store, RUN_ID, folder, 2).record.patch is None
    assert not (folder / "entry.patch").exists()


def test_a_record_that_names_files_elsewhere_is_no_record(store: Store, folder: Path) -> None:
    Kept(store).attempt(FASTER, measured(1.3), accepted=True)
    export(store, RUN_ID, folder)
    fields = json.loads((folder / RECORD).read_bytes())
    fields["patch"]["name"] = "../entry.patch"
    (folder / RECORD).write_text(json.dumps(fields))
    assert "not written by an export" in refused(Kind.REJECTED, store, RUN_ID, folder).problem.message


def test_what_a_file_imports_from_its_own_folder_is_named(store: Store, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "helpers.py").touch()
    (tmp_path / "parts").mkdir()
    text = "import torch, helpers\nfrom parts.one import two\nfrom . import three\n" + FASTER
    Kept(store).attempt(text, measured(1.3), accepted=True, kernel_origin=str(tmp_path))
    (note,) = export(store, RUN_ID, folder).record.not_checked
    assert note.startswith(f"entry.py imports helpers, parts from {tmp_path}")


def test_a_folder_that_can_not_be_made_is_told_with_the_remedy(store: Store, tmp_path: Path) -> None:
    Kept(store).attempt(FASTER, measured(1.3), accepted=True)
    (tmp_path / "file").touch()
    stopped = refused(Kind.UNAVAILABLE, store, RUN_ID, tmp_path / "file" / "out")
    assert str(tmp_path / "file" / "out") in stopped.problem.message
    assert "--to" in str(stopped.problem.likely_fix)


@pytest.mark.parametrize(
    ("entry", "name"), [("softmax", "softmax"), ("task", "task_kernel"), ("baseline", "baseline_kernel"), ("µ", "_")]
)
def test_the_kernel_is_called_as_its_entry_unless_that_is_taken(entry: str, name: str) -> None:
    assert file_name(entry) == name
