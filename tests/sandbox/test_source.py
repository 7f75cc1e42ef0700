"""Sources as callers give them: every way to give one wrongly is rejected with what to do instead."""

import os
from pathlib import Path

import pytest

from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.source import INLINE, SIZE_LIMIT_BYTES, read_source


def refusal(given: str, what: str = "kernel") -> Problem:
    with pytest.raises(Stopped) as caught:
        read_source(given, what)
    assert caught.value.kind is Kind.REJECTED
    assert caught.value.problem.stage == "source"
    return caught.value.problem


def test_text_with_a_newline_is_the_source_itself() -> None:
    source = read_source("x = 1\n", "kernel")
    assert source == ("x = 1\n", INLINE, None)


def test_a_path_is_read_and_shown_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernel.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    source = read_source("./kernel.py", "kernel")
    assert source == ("x = 1\n", "./kernel.py", str(tmp_path.resolve()))


def test_a_tilde_means_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernel.py").write_text("x = 1\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_source("~/kernel.py", "kernel").text == "x = 1\n"


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_bytes(b"\xef\xbb\xbfx = 1\n")
    assert read_source(str(path), "kernel").text == "x = 1\n"


@pytest.mark.parametrize("given", ["", "   ", "\t"])
def test_nothing_is_rejected(given: str) -> None:
    problem = refusal(given, "baseline")
    assert problem.message == "baseline is empty"
    assert problem.likely_fix == "Give baseline as a path to a Python file or as source text."


def test_a_nul_byte_in_a_path_is_rejected() -> None:
    assert refusal("kern\0el.py").message == "the kernel path contains a NUL byte"


def test_a_nul_byte_in_the_text_is_rejected_with_its_line() -> None:
    assert refusal("x = 1\ny = 2\nz = '\0'\n").message == "the kernel source contains a NUL byte on line 3"


def test_a_nul_byte_in_a_file_is_rejected_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_bytes(b"x = 1\n\0\n")
    problem = refusal(str(path), "task")
    assert problem.message == "the task source contains a NUL byte on line 2"
    assert problem.file == str(path)


def test_a_lone_surrogate_is_rejected() -> None:
    assert "lone surrogate" in refusal("x = '\udc80'\n").message


def test_text_of_exactly_the_limit_is_accepted() -> None:
    text = "\n" + "#" * (SIZE_LIMIT_BYTES - 1)
    assert read_source(text, "kernel").text == text


def test_the_limit_counts_bytes_and_not_characters() -> None:
    problem = refusal("\n" + "é" * (SIZE_LIMIT_BYTES // 2))
    assert problem.message == "the kernel source has 1,000,001 bytes; 1,000,000 are allowed"


def test_five_megabytes_of_text_are_rejected() -> None:
    assert refusal("#\n" * 2_500_000).message == "the kernel source has 5,000,000 bytes; 1,000,000 are allowed"


def test_five_megabytes_of_a_lone_surrogate_are_rejected_for_their_size() -> None:
    assert "are allowed" in refusal("\n" + "\ud800" * 2_000_000).message


def test_a_large_file_is_rejected_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    with path.open("wb") as file:
        # Sparse: reading it would need more memory than there is.
        file.truncate(1 << 40)
    assert "bytes; 1,000,000 are allowed" in refusal(str(path)).message


def test_a_folder_is_rejected_and_its_files_are_offered(tmp_path: Path) -> None:
    (tmp_path / "b.py").touch()
    (tmp_path / "a.py").touch()
    (tmp_path / "notes.txt").touch()
    problem = refusal(str(tmp_path))
    assert problem.message == f"{tmp_path} is a folder, not a file"
    assert problem.likely_fix == "Name one of its files: a.py, b.py."


def test_a_folder_without_python_files_is_rejected(tmp_path: Path) -> None:
    assert refusal(str(tmp_path)).likely_fix == "Give the path of a Python file."


def test_a_missing_file_is_rejected_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "softmax_kernel.py").touch()
    (tmp_path / "unrelated.py").touch()
    missing = tmp_path / "softmx_kernel.py"
    problem = refusal(str(missing))
    assert problem.message == f"there is no kernel file {missing} (looked in {Path.cwd()})"
    assert problem.likely_fix == f"Did you mean {tmp_path / 'softmax_kernel.py'}?"


@pytest.mark.parametrize("given", ["no/such/folder/kernel.py", "x = 1"])
def test_a_missing_file_with_no_near_name_says_what_is_allowed(given: str) -> None:
    assert "text with a newline is source" in (refusal(given).likely_fix or "")


def test_a_path_through_a_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").touch()
    assert "can't be read: Not a directory" in refusal(str(tmp_path / "kernel.py" / "x.py")).message


def test_a_name_too_long_for_a_path_is_rejected_and_not_repeated_in_full() -> None:
    problem = refusal("k" * 100_000)
    assert "can't be read: File name too long" in problem.message
    assert len(problem.message) < 400


def test_a_file_that_is_not_utf8_is_rejected_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_bytes("x = 'é'\n".encode("latin-1"))
    assert refusal(str(path)).message == f"{path} is not UTF-8 text: invalid continuation byte at byte 5"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_rejected_and_not_read(device: str) -> None:
    assert refusal(device).message == f"{device} is not a regular file"


def test_a_pipe_is_rejected_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kernel.py")
    assert "is not a regular file" in refusal(str(tmp_path / "kernel.py")).message


def test_a_lone_surrogate_in_a_path_is_rejected() -> None:
    assert refusal("kernel\udc80.py").message == "the kernel path is not valid UTF-8"


def test_the_home_of_an_unknown_user_is_rejected() -> None:
    assert "can't be expanded" in refusal("~no-such-user/kernel.py").message
