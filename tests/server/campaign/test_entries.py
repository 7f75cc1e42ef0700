"""Which artefacts a folder has, and which of them are chosen."""

import os
from pathlib import Path

import pytest

from tests.server.adapters.files import LINE
from tritonforge.sandbox.errors import Stopped
from tritonforge.server.campaign.entries import code_lines, entries, passed_over

KERNEL = (
    '"""What it does."""\n\nimport torch  # for tensors\n\n\n# A comment.\ndef f(x):\n    return (\n        x\n    )\n'
)


def folder(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(KERNEL)
    return path


def names(path: Path, **more: object) -> list[str]:
    return [entry.name for entry in entries(path, **more)]  # pyright: ignore[reportArgumentType]


def test_python_files_are_artefacts_and_what_lies_below_or_beside_is_none(tmp_path: Path) -> None:
    found = entries(folder(tmp_path, "b.py", "a.py", "__init__.py", "sub/c.py", "notes.md"))
    assert [(entry.name, entry.path) for entry in found] == [("a", tmp_path / "a.py"), ("b", tmp_path / "b.py")]


def test_folders_with_a_task_yml_are_found_wherever_they_are_and_keep_apart(tmp_path: Path) -> None:
    folder(tmp_path, "a.py", "one/sort/task.yml", "two/sort/task.yml", "two/sort/submission.py", "x.y/task.yml")
    found = entries(tmp_path)
    assert [(entry.name, entry.path.relative_to(tmp_path)) for entry in found] == [
        ("sort", Path("one/sort")),
        ("sort_", Path("two/sort")),
        ("x.y", Path("x.y")),
    ]
    assert [entry.lines for entry in found] == [0, 6, 0]


def test_python_files_beside_folders_with_a_task_yml_are_passed_over_and_named(tmp_path: Path) -> None:
    folder(tmp_path, "utils.py", "eval.py", "__init__.py", "sort/task.yml", "sort/submission.py")
    assert names(tmp_path) == ["sort"]
    note = passed_over(tmp_path)
    assert note is not None
    assert note.startswith(f"2 Python files of {tmp_path.name} passed over")
    assert "(eval.py, utils.py)" in note
    with pytest.raises(Stopped) as caught:
        names(tmp_path, only=("eval",))
    assert note in (caught.value.problem.likely_fix or "")
    folder(tmp_path, *[f"k{number:02}.py" for number in range(12)])
    assert "k06.py and 6 more" in (passed_over(tmp_path) or "")


@pytest.mark.parametrize("files", [("a.py",), ("sort/task.yml",), ("a.py", ".git/task.yml"), ("task.yml", "a.py")])
def test_where_there_is_one_kind_of_artefacts_nothing_is_passed_over(tmp_path: Path, files: tuple[str, ...]) -> None:
    assert passed_over(folder(tmp_path, *files)) is None


def test_names_are_fit_for_folders(tmp_path: Path) -> None:
    assert names(folder(tmp_path, "a b.py", "größe.py", "a_b.py")) == ["a_b", "a_b_", "gr_e"]


def test_a_subset_is_the_same_for_a_seed(tmp_path: Path) -> None:
    folder(tmp_path, *[f"k{number:02}.py" for number in range(30)])
    chosen = names(tmp_path, subset=5, seed=1)
    assert chosen == names(tmp_path, subset=5, seed=1)
    assert len(chosen) == 5
    assert chosen != names(tmp_path, subset=5, seed=2)
    assert len(names(tmp_path, subset=50)) == 30


def test_only_those_that_are_named(tmp_path: Path) -> None:
    folder(tmp_path, *[f"k{number:02}.py" for number in range(12)])
    assert names(tmp_path, only=("k03", "k01")) == ["k01", "k03"]
    with pytest.raises(Stopped) as caught:
        names(tmp_path, only=("k01", "softmax"))
    problem = caught.value.problem
    assert problem.message == f"{tmp_path} has no softmax"
    assert problem.likely_fix is not None
    assert problem.likely_fix.endswith("k07 and 4 more.")


def test_only_regular_files_whose_names_are_safe_are_artefacts(tmp_path: Path) -> None:
    for name in ("good.py", ".hidden.py", "..py", "...py", "__init__.py", ".git/task.yml"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(KERNEL)
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "gone.py").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.py")
    assert [entry.name for entry in entries(tmp_path)] == ["good"]


def test_a_folder_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rglob", refuse)
    with pytest.raises(Stopped, match="can't be read: Permission denied"):
        entries(tmp_path)


@pytest.mark.parametrize(("made", "told"), [(False, "there is no folder"), (True, "has neither Python files nor")])
def test_a_folder_without_artefacts_is_refused(tmp_path: Path, made: bool, told: str) -> None:
    place = tmp_path / "kernels"
    if made:
        place.mkdir()
    with pytest.raises(Stopped, match=told):
        entries(place)


def test_lines_are_those_of_the_kernel_part_with_code_on_them(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"{KERNEL}\n{LINE}\n\nimport torch\nf(torch.ones(3))\n")
    (tmp_path / "b.py").write_text(KERNEL)
    assert [entry.lines for entry in entries(tmp_path)] == [6, 6]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("# nothing\n\n", 0),
        ("x = 1\n", 1),
        ("x = (\n    1,\n\n    # one\n    2,\n)\n", 4),
        ('"""\ntext\n"""\n', 3),
        ("def (:\n  # no Python\n\n  x = '''\n", 2),
    ],
)
def test_lines_of_code(text: str, count: int) -> None:
    assert code_lines(text) == count
