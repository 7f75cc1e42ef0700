"""Interpreters and machines of every kind: each is found out about in time, and what is wrong is told with a remedy."""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.sandbox.conftest import open_descriptors
from tritonforge.sandbox import rehearsal
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.isolation import Interpreter, Seal
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.rehearsal import NO_BWRAP, REMEDY, describe_interpreter, find_seal

pytestmark = pytest.mark.anyio
LONG_S = 60.0
SHORT_S = 0.5
"""For what never answers."""
PATIENCE_S = 30.0
"""What hangs although it must not fails after this."""

WriteScript = Callable[[str], str]


def mentioned(folder: Path) -> list[str]:
    """Running processes that have this folder in their command lines."""
    found: list[str] = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


async def all_end(folder: Path) -> None:
    """Wait until none of these runs any more: one that was killed is there for a moment longer."""
    with anyio.fail_after(PATIENCE_S):
        while mentioned(folder):
            await anyio.lowlevel.checkpoint()


@pytest.fixture
def script(tmp_path: Path) -> WriteScript:
    """Writes a program for the shell."""

    def write(text: str) -> str:
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return write


async def problem_of(python: str, timeout_s: float = LONG_S) -> Problem:
    with anyio.fail_after(PATIENCE_S), pytest.raises(Stopped) as caught:
        await describe_interpreter(python, timeout_s)
    assert caught.value.kind is Kind.UNAVAILABLE
    problem = caught.value.problem
    assert problem.stage == "environment"
    assert repr(python) in problem.message
    assert "--python" in (problem.likely_fix or "")
    return problem


async def test_an_interpreter_tells_where_it_lies() -> None:
    interpreter = await describe_interpreter(sys.executable, LONG_S)
    assert interpreter.executable == sys.executable
    assert {sys.executable, sys.prefix, sys.base_prefix} <= set(interpreter.paths)
    assert any(path.endswith("site-packages") for path in interpreter.paths)


async def test_an_interpreter_that_greets_is_understood(script: WriteScript) -> None:
    interpreter = await describe_interpreter(script(f'echo "Welcome!"\necho\nexec "{sys.executable}" "$@"'), LONG_S)
    assert interpreter.executable == sys.executable


async def test_where_a_users_own_packages_lie_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    base = getattr(sys, "_base_executable", sys.executable)
    interpreter = await describe_interpreter(base, LONG_S)
    assert interpreter.user_base == str(tmp_path / ".local")
    assert any(path.startswith(str(tmp_path / ".local")) for path in interpreter.paths)


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("/no/such/python", "No such file or directory"),
        ("no-such-python-on-the-path", "No such file or directory"),
        ("/", "Permission denied"),
        ("/etc/passwd", "Permission denied"),
    ],
)
async def test_what_can_not_be_started_is_told(python: str, words: str) -> None:
    assert words in (await problem_of(python)).message


async def test_a_file_that_is_no_program_is_told(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_bytes(b"\x7fELF and so on")
    path.chmod(0o755)
    assert "Exec format error" in (await problem_of(str(path))).message


@pytest.mark.parametrize(
    "output",
    ["", "garbage", "{}", "[]", "5", "null", '{"executable": null, "paths": [], "user_base": null}', '{"paths": 7}'],
)
async def test_what_prints_something_else_is_no_interpreter(script: WriteScript, output: str) -> None:
    problem = await problem_of(script(f"echo '{output}'"))
    assert "is no Python 3.11 or newer" in problem.message
    assert (problem.output or "").strip() == output


async def test_an_old_interpreter_is_told_with_its_own_words(script: WriteScript) -> None:
    problem = await problem_of(script("echo 'Unknown option: -P' >&2\nexit 2"))
    assert "is no Python 3.11 or newer" in problem.message
    assert problem.output == "Unknown option: -P\n"


async def test_what_prints_without_end_is_no_interpreter_and_fills_no_memory(script: WriteScript) -> None:
    problem = await problem_of(script("while :; do echo garbage; done"), SHORT_S)
    assert f"did not answer within {SHORT_S:g} s" in problem.message


async def test_what_prints_bytes_that_are_no_text_is_no_interpreter(script: WriteScript) -> None:
    assert "is no Python" in (await problem_of(script("printf '\\377\\376'"))).message


async def test_an_interpreter_that_hangs_is_ended_with_all_that_it_started(script: WriteScript, tmp_path: Path) -> None:
    fifo, descriptors = tmp_path / "fifo", open_descriptors()
    os.mkfifo(fifo)
    problem = await problem_of(script(f"cat {fifo} &\ncat {fifo}"), SHORT_S)
    assert f"did not answer within {SHORT_S:g} s" in problem.message
    await all_end(tmp_path)
    assert open_descriptors() == descriptors


async def test_what_an_interpreter_leaves_behind_holds_up_nobody(script: WriteScript, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with anyio.fail_after(PATIENCE_S):
        interpreter = await describe_interpreter(script(f'cat {fifo} &\nexec "{sys.executable}" "$@"'), LONG_S)
    assert interpreter.executable == sys.executable
    # Lets it end: it waits for somebody who writes.
    os.close(os.open(fifo, os.O_WRONLY))


async def test_asking_can_be_cancelled_and_leaves_nothing(script: WriteScript, tmp_path: Path) -> None:
    fifo, descriptors = tmp_path / "fifo", open_descriptors()
    os.mkfifo(fifo)
    python = script(f'echo > {fifo}\ncat "{fifo}"')
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(describe_interpreter, python, LONG_S)
        # Returns once the program runs.
        await anyio.to_thread.run_sync(fifo.read_bytes)
        tasks.cancel_scope.cancel()
    await all_end(tmp_path)
    assert open_descriptors() == descriptors


@pytest.fixture
async def interpreter() -> Interpreter:
    return await describe_interpreter(sys.executable, LONG_S)


async def seal_of(interpreter: Interpreter, *, require: bool = False, hidden: tuple[Path, ...] = ()) -> Seal:
    with anyio.fail_after(PATIENCE_S):
        return await find_seal(interpreter, Limits(), allowed=(), hidden=hidden, require=require)


def use_bwrap(monkeypatch: pytest.MonkeyPatch, path: str | None) -> None:
    monkeypatch.setattr(rehearsal, "find_bwrap", lambda: path)


async def test_without_bubblewrap_there_is_no_seal_and_a_reason(
    interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_bwrap(monkeypatch, None)
    seal = await seal_of(interpreter)
    assert not seal.sealed
    assert seal.reason == NO_BWRAP
    assert seal.layers == ()


async def test_a_required_seal_that_can_not_be_had_is_unavailable_with_the_remedy(
    interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_bwrap(monkeypatch, None)
    with pytest.raises(Stopped) as caught:
        await seal_of(interpreter, require=True)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert NO_BWRAP in caught.value.problem.message
    assert caught.value.problem.likely_fix == REMEDY


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo 'bwrap: No permissions to create new namespace' >&2\nexit 1", "No permissions to create new namespace"),
        ("exit 7", "exit code 7"),
        ("echo garbage", "exit code 0"),
        ("echo 5", "exit code 0"),
        ("echo '{\"layers\": 5}'", "exit code 0"),
        ('echo \'{"failed": "unshare: Operation not permitted"}\'', "unshare: Operation not permitted"),
        ("echo '{\"layers\": []}'", "found no layer"),
    ],
)
async def test_the_words_of_a_bubblewrap_that_fails_are_the_reason(
    interpreter: Interpreter, script: WriteScript, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    use_bwrap(monkeypatch, script(text))
    seal = await seal_of(interpreter)
    assert not seal.sealed
    assert words in (seal.reason or "")
    # Root has several ways, which all fail alike.
    assert (seal.reason or "").count(words) == 1


async def test_a_bubblewrap_that_is_no_program_is_the_reason(
    interpreter: Interpreter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_bwrap(monkeypatch, str(tmp_path))
    assert "bubblewrap can't be run: Permission denied" in ((await seal_of(interpreter)).reason or "")


async def test_a_bubblewrap_that_hangs_is_the_reason(
    interpreter: Interpreter, script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    use_bwrap(monkeypatch, script(f"cat {tmp_path / 'fifo'}"))
    monkeypatch.setattr(rehearsal, "REHEARSAL_S", SHORT_S)
    assert f"did not end within {SHORT_S:g} s" in ((await seal_of(interpreter)).reason or "")
    await all_end(tmp_path)


def layers(**holds: bool) -> str:
    return json.dumps({"layers": [{"name": name, "holds": it, "detail": name} for name, it in holds.items()]})


async def test_a_way_whose_layers_all_hold_is_better_than_an_earlier_one(
    interpreter: Interpreter, script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "_ways", lambda: [(False, True), (True, False)])
    whole, broken = layers(files=True, user=True), layers(files=False, user=True)
    use_bwrap(monkeypatch, script(f"case \" $* \" in *' --unshare-user '*) echo '{whole}';; *) echo '{broken}';; esac"))
    seal = await seal_of(interpreter)
    assert seal.user_namespace
    assert all(layer.holds for layer in seal.layers)


async def test_where_no_way_is_whole_the_strongest_is_taken(
    interpreter: Interpreter, script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "_ways", lambda: [(False, True), (True, False)])
    use_bwrap(monkeypatch, script(f"echo '{layers(files=True, user=False)}'"))
    seal = await seal_of(interpreter, require=True)
    assert (seal.sealed, seal.user_namespace, seal.become_nobody) == (True, False, True)
    assert [layer.name for layer in seal.layers if not layer.holds] == ["user"]


async def test_every_layer_holds_on_this_machine(interpreter: Interpreter) -> None:
    seal = await seal_of(interpreter, hidden=(Path.home(), Path("/root"), Path("/var")))
    if not seal.sealed:
        pytest.skip(f"this machine allows no sandbox: {seal.reason}")
    assert [layer for layer in seal.layers if not layer.holds] == []
    names = {layer.name for layer in seal.layers}
    assert names >= {"processes", "files", "writing", "network", "capabilities", "new privileges", "user"}


async def test_a_hidden_folder_that_can_be_read_all_the_same_is_told(interpreter: Interpreter) -> None:
    seal = await seal_of(interpreter, hidden=(Path("/usr"),))
    if not seal.sealed:
        pytest.skip(f"this machine allows no sandbox: {seal.reason}")
    (broken,) = [layer for layer in seal.layers if not layer.holds]
    assert broken.name == "files"
    assert broken.detail.startswith("/usr/")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be sealed without a user namespace")
@pytest.mark.parametrize("way", [(False, True), (False, False), (True, False)])
async def test_every_way_that_root_has_works_here(
    interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch, way: tuple[bool, bool]
) -> None:
    monkeypatch.setattr(rehearsal, "_ways", lambda: [way])
    seal = await seal_of(interpreter)
    if not seal.sealed:
        pytest.skip(f"this machine allows no sandbox of this way: {seal.reason}")
    broken = {layer.name for layer in seal.layers if not layer.holds}
    # Root that becomes nobody else stays root inside, without any capability.
    assert broken == (set() if way[1] else {"user"})


async def test_rehearsing_leaves_nothing_open(interpreter: Interpreter) -> None:
    descriptors = open_descriptors()
    await seal_of(interpreter)
    assert open_descriptors() == descriptors
