"""The command line: exact JSON, and exit codes that scripts can rely on."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.server.conftest import DEADLINE_S, SIN, descendants, left_in, wait_for_end, without_gpu, without_sandbox
from tritonforge import __version__
from tritonforge.sandbox.rehearsal import REMEDY
from tritonforge.server.cli import FAILED, MISUSE, OK, run
from tritonforge.server.results import Result
from tritonforge.server.settings import Settings


def command_line(*arguments: str, state: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs the command line with a state folder of its own, unless that is given."""
    return subprocess.run(
        [sys.executable, "-m", "tritonforge.server", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
        env={**os.environ, "TRITONFORGE_STATE_DIR": str(state), "COLUMNS": "120", **environment},
    )


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter without torch."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return str(folder / "bin" / "python")


def test_the_console_script_says_its_version() -> None:
    script = Path(sys.executable).with_name("tritonforge-mcp")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"tritonforge-mcp {__version__}\n"


def test_a_call_prints_exactly_the_structured_result_and_ends_with_0(tmp_path: Path) -> None:
    done = command_line("call", "hardware_spec", "--target", "h200", "--json", state=tmp_path)
    result = json.loads(done.stdout)
    assert set(Result.model_fields) <= set(result)
    assert (result["kind"], result["target"]["name"]) == ("ok", "h200")
    assert done.returncode == OK


@without_gpu
def test_a_call_without_json_prints_the_text(tmp_path: Path) -> None:
    done = command_line("call", "benchmark", "--kernel", SIN["kernel"], "--task", SIN["task"], state=tmp_path)
    assert done.stdout.startswith("unavailable: this machine has no NVIDIA GPU")
    assert done.returncode == FAILED


MISUSES = {
    "an unknown tool": (["call", "hardware_spc"], "there is no tool 'hardware_spc'; the tools are hardware_spec,"),
    "an unknown key": (["call", "compile_kernel", "--kernl", "k.py"], "there is no argument --kernl"),
    "a missing key": (["call", "run_correctness", "--json", "--kernel", "k.py"], "missing: --task"),
    "a missing value": (["call", "compile_kernel", "--kernel"], "--kernel needs a value"),
    "a stray word": (["call", "hardware_spec", "--json", "stray"], "'stray' stands alone"),
    "a value out of bounds": (["call", "run_correctness", "--kernel=k", "--task=t", "--seeds=0"], "equal to 1"),
    "no tool": (["call", "--json"], "required: TOOL"),
    "an unknown command": (["dance"], "usage: tritonforge-mcp"),
    "an unknown option": (["--pyton", "python"], "usage: tritonforge-mcp"),
    "an unknown option of a command": (["doctor", "--fast"], "unrecognized arguments: --fast"),
    "a word after serve": (["serve", "stray"], "unrecognized arguments: stray"),
}
RUN_ALL = """
import contextlib, io, json, os, sys
from tritonforge.server.cli import run
usual = dict(os.environ)
for words, environment in json.loads(sys.argv[1]):
    os.environ.clear()
    os.environ.update(usual | environment)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = run(words)
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


class Ran(NamedTuple):
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def ran(bare_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """Commands that end soon, all from one process: most of the time of each is its start."""
    state = {"TRITONFORGE_STATE_DIR": str(tmp_path_factory.mktemp("state"))}
    bare = {**state, "TRITONFORGE_PYTHON": bare_python}
    commands: dict[str, tuple[list[str], dict[str, str]]] = {name: (words, {}) for name, (words, _) in MISUSES.items()}
    commands |= {
        "a call of nothing": (["call", "compile_kernel", "--json", "--kernel", "none.py", "--task=none.py"], state),
        "doctor with an option": (["doctor", "--python", bare_python], state),
        "an option before": (["--python", "/no/such/python", "doctor"], bare),
        "doctor with a variable": (["doctor", "--json"], bare),
    }
    words = json.dumps([*commands.values()])
    done = subprocess.run([sys.executable, "-c", RUN_ALL, words], capture_output=True, text=True, check=True)
    return {name: Ran(*json.loads(line)) for name, line in zip(commands, done.stdout.splitlines(), strict=True)}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_ends_with_2_and_prints_nothing_that_looks_like_a_result(ran: dict[str, Ran], name: str) -> None:
    assert ran[name].returncode == MISUSE
    assert ran[name].stdout == ""
    assert MISUSES[name][1] in ran[name].stderr


def test_a_call_that_does_not_end_in_ok_ends_with_1(ran: dict[str, Ran]) -> None:
    done = ran["a call of nothing"]
    assert json.loads(done.stdout)["kind"] == "rejected"
    assert done.returncode == FAILED


@pytest.mark.parametrize("words", [["runs", "list"], ["call", "hardware_spec"]], ids=["outside", "inside"])
def test_a_command_that_nobody_reads_any_more_ends_without_a_word(tmp_path: Path, words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "tritonforge.server", "--state-dir", str(tmp_path), *words],
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=DEADLINE_S,
        # Each line is written as it is printed, in the middle of the command.
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_doctor_says_that_the_main_job_can_run_here(tmp_path: Path) -> None:
    done = command_line("doctor", "--json", state=tmp_path)
    report = json.loads(done.stdout)
    assert report["version"] == __version__
    assert report["able"] is True
    assert report["checks"][0]["name"] == "worker interpreter"
    assert all(check["remedy"] for check in report["checks"] if check["status"] == "missing")
    assert done.returncode == OK


def test_doctor_says_what_is_missing_from_an_interpreter_without_torch(ran: dict[str, Ran]) -> None:
    done = ran["doctor with an option"]
    assert "MISSING  worker interpreter" in done.stdout
    assert "torch" in done.stdout
    assert done.stdout.endswith("mend what is MISSING.\n")
    assert done.returncode == FAILED


def test_options_count_before_and_after_the_command_and_come_before_the_environment(ran: dict[str, Ran]) -> None:
    done = ran["an option before"]
    assert "'/no/such/python' can't be started" in done.stdout
    assert done.returncode == FAILED


def test_the_interpreter_of_the_environment_is_used(ran: dict[str, Ran]) -> None:
    done = ran["doctor with a variable"]
    report = json.loads(done.stdout)
    assert report["able"] is False
    assert report["checks"][0]["status"] == "missing"
    assert report["checks"][0]["remedy"]
    assert done.returncode == FAILED


@pytest.mark.parametrize(
    ("words", "folders"),
    [
        (["doctor"], []),
        (["--allow-read", "/usr", "doctor"], ["/usr"]),
        (["doctor", "--allow-read", "/usr", "--allow-read=/etc"], ["/usr", "/etc"]),
        (["--allow-read", "/usr", "--allow-read", "/etc", "doctor", "--allow-read", "/opt"], ["/usr", "/etc", "/opt"]),
    ],
)
def test_folders_to_be_read_add_up_before_and_after_the_command(
    monkeypatch: pytest.MonkeyPatch, words: list[str], folders: list[str]
) -> None:
    seen = settings_of(monkeypatch, words)
    assert seen.allow_read == tuple(map(Path, folders))
    assert not seen.require_sandbox


@pytest.mark.parametrize("words", [["--require-sandbox", "doctor"], ["doctor", "--require-sandbox"]])
def test_a_sandbox_is_required_before_or_after_the_command(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    assert settings_of(monkeypatch, words).require_sandbox


def test_a_folder_to_be_read_that_is_not_there_is_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--allow-read", str(tmp_path / "mistyped"), "doctor"]) == MISUSE
    assert f"there is no folder {tmp_path / 'mistyped'}" in capsys.readouterr().err


@pytest.mark.parametrize("first", [True, False])
def test_the_pool_is_set_before_or_after_the_command(monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    options = ["--spares", "0", "--gpu-spares", "7", "--idle-s", "2.5", "--memory-gb", "4", "--gpu-memory-gb", "8"]
    settings = settings_of(monkeypatch, [*options, "doctor"] if first else ["doctor", *options])
    assert (settings.spares, settings.gpu_spares, settings.idle_s) == (0, 7, 2.5)
    assert (settings.limits.memory_bytes, settings.limits.gpu_memory_bytes) == (4 * 10**9, 8 * 10**9)


@pytest.mark.parametrize(
    "words", [["--spares", "-1"], ["--spares", "1.5"], ["--idle-s", "0"], ["--memory-gb", "inf"], ["--idle-s", "nan"]]
)
def test_a_pool_that_makes_no_sense_is_misuse(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run([*words, "doctor"])
    assert ended.value.code == MISUSE
    assert "is not a " in capsys.readouterr().err


def settings_of(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> Settings:
    """What a command line makes of itself, with doctor taken out."""
    seen: list[Settings] = []

    async def doctor(settings: Settings, as_json: bool, *, probe: object) -> int:
        seen.append(settings)
        return OK

    monkeypatch.setattr("tritonforge.server.doctor.doctor", doctor)
    monkeypatch.setattr("tritonforge.server.cli._own_signals", lambda: None)
    monkeypatch.delenv("TRITONFORGE_ALLOW_READ", raising=False)
    monkeypatch.delenv("TRITONFORGE_REQUIRE_SANDBOX", raising=False)
    assert run(words) == OK
    return seen[0]


def test_a_sandbox_that_is_required_and_not_to_be_had_stops_calls_and_is_missing_to_doctor(tmp_path: Path) -> None:
    environment = without_sandbox(tmp_path)
    call = ["call", "compile_kernel", "--kernel", SIN["kernel"], "--task", SIN["task"], "--target", "h100", "--json"]
    done = command_line(*call, "--require-sandbox", state=tmp_path / "state", **environment)
    result = json.loads(done.stdout)
    assert result["kind"] == "unavailable"
    assert result["next_step"] == result["problem"]["likely_fix"] == REMEDY
    assert done.returncode == FAILED
    done = command_line("doctor", state=tmp_path / "state", TRITONFORGE_REQUIRE_SANDBOX="1", **environment)
    assert "MISSING  isolation: a sandbox is required" in done.stdout
    assert f"-> {REMEDY}" in done.stdout
    assert done.returncode == FAILED


def test_a_sandbox_that_is_not_to_be_had_is_a_limit_to_doctor_where_none_is_required(tmp_path: Path) -> None:
    environment = without_sandbox(tmp_path)
    done = command_line("doctor", state=tmp_path, TRITONFORGE_REQUIRE_SANDBOX="", **environment)
    assert "limited  isolation: kernels run in processes of their own" in done.stdout
    assert f"-> {REMEDY}" in done.stdout
    assert done.returncode == OK


def test_a_state_folder_that_cannot_be_written_is_an_outcome_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = command_line(
        "call", "compile_kernel", "--kernel", SIN["kernel"], "--task", SIN["task"], "--cases", "small",
        "--target", "h100", "--json", state=tmp_path / "file" / "state",
    )  # fmt: skip
    result = json.loads(done.stdout)
    assert result["kind"] == "unavailable"
    assert str(tmp_path / "file" / "state") in result["problem"]["message"]
    assert "--state-dir" in result["next_step"]
    assert done.returncode == FAILED


TELLING = """
with open({fifo!r}, "w") as told:
    told.write("running")
while True:
    pass
"""
"""A kernel file that says that it is being loaded, and never ends."""


# Both signals have the same handler.
@pytest.mark.parametrize(
    ("number", "sandbox"), [(signal.SIGINT, "as the machine is"), (signal.SIGTERM, "without a sandbox")]
)
def test_a_command_that_is_interrupted_leaves_no_process_and_no_scratch(
    tmp_path: Path, number: signal.Signals, sandbox: str
) -> None:
    scratch, opened = tmp_path / "scratch", tmp_path / "opened"
    scratch.mkdir()
    opened.mkdir()
    # Also for a worker that is nobody.
    opened.chmod(0o755)
    fifo = opened / "told"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    told = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    environment = {} if sandbox == "as the machine is" else without_sandbox(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "tritonforge.server", "call", "compile_kernel", "--allow-read", str(opened),
         "--kernel", TELLING.format(fifo=str(fifo)), "--task", SIN["task"], "--target", "h100"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TRITONFORGE_STATE_DIR": str(tmp_path / "state"), "TMPDIR": str(scratch), **environment},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([told, process.stdout], [], [], DEADLINE_S)
        assert ready == [told], "no kernel was loaded"
        running = descendants(process.pid)
        assert running
        assert left_in(scratch) or sandbox == "as the machine is"
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 128 + number
        assert (stdout, stderr) == (b"", b"")
        wait_for_end(running)
        assert left_in(scratch) == []
    finally:
        os.close(told)
        process.kill()
        process.communicate()


def test_a_command_that_is_interrupted_before_an_interpreter_answers_leaves_no_process(tmp_path: Path) -> None:
    fifo, python = tmp_path / "told", tmp_path / "python"
    os.mkfifo(fifo)
    python.write_text(f'#!/bin/sh\necho running > "{fifo}"\nexec tail -f /dev/null\n')
    python.chmod(0o755)
    told = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    command = [sys.executable, "-m", "tritonforge.server", "doctor", "--python", str(python)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert select.select([told], [], [], DEADLINE_S)[0], "the interpreter was not asked"
        running = descendants(process.pid)
        assert running
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM
        wait_for_end(running)
    finally:
        os.close(told)
        process.kill()
        process.communicate()


@without_gpu
def test_the_demo_runs_through_and_compares_baseline_and_candidate(tmp_path: Path) -> None:
    done = command_line("demo", state=tmp_path)
    assert done.returncode == OK, done.stdout + done.stderr
    assert "V6 Block too small for its threads" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["baseline", "candidate"] in rows
    assert ["programs", "4,194,304", "16,384"] in rows
    assert ["elements", "a", "program", "4", "1,024"] in rows
    assert ["load", "widths,", "bytes", "4", "16"] in rows
    assert "1 of 1 cases right" in done.stdout
    assert done.stdout.count("unavailable: this machine has no NVIDIA GPU") == 2
    assert "candidate.py: as predicted." in done.stdout
    assert "Compiling and checking work here" in done.stdout
    script = Path(sys.executable).with_name("tritonforge-mcp")
    assert f"\n  {script} call diagnose_kernel --kernel my_kernel.py\n" in done.stdout
