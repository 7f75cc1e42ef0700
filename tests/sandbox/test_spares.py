"""Preloaders: how they start and end, and what becomes of their spares then."""

import functools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from tests.sandbox.conftest import light_program, open_descriptors
from tests.sandbox.light import (
    JOB,
    PATIENCE_S,
    RUNS,
    CancelledAt,
    Ground,
    Watched,
    background,
    children_of,
    descriptors_become,
    itself,
    look,
    run,
    say,
)
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.isolation import Interpreter
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.process import WorkerProcess
from tritonforge.sandbox.spares import Preloader, kill_marked, start_preloader
from tritonforge.sandbox.usage import tree

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("harmless_race")]
PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(scope="module", params=["local sealed", "local unsealed"])
async def ground(request: pytest.FixtureRequest) -> Ground:
    return await look(request.param)


@pytest.fixture
async def sealed() -> Ground:
    return await look("local sealed")


async def start(ground: Ground, tasks: TaskGroup, **limits: Any) -> Preloader:
    interpreter, seal = ground
    return await start_preloader(interpreter, "cpu", seal, Limits.model_validate(limits), tasks)


def preloading(monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    """Preloaders do without torch, and execute this before anything else begins."""
    monkeypatch.setattr("tritonforge.sandbox.spares.program", functools.partial(light_program, more=more))


@pytest.fixture
async def preloader(ground: Ground, light: None) -> AsyncGenerator[Preloader]:
    async with background() as tasks:
        preloader = await start(ground, tasks)
        yield preloader
        await preloader.close()


async def fork(preloader: Preloader) -> WorkerProcess:
    with anyio.fail_after(PATIENCE_S):
        return await preloader.fork("cpu", None, Limits())


async def refused(preloader: Preloader) -> Problem:
    with pytest.raises(Stopped) as caught:
        await fork(preloader)
    assert caught.value.kind is Kind.UNAVAILABLE
    return caught.value.problem


async def test_spares_die_with_the_preloader(preloader: Preloader, ground: Ground) -> None:
    spares = [await fork(preloader) for _ in range(3)]
    with Watched({pid for spare in spares for pid in tree(spare.handle.pid)}) as watched:
        os.kill(itself(preloader.pid, ground), signal.SIGKILL)
        await watched.end()
    for spare in spares:
        assert spare.handle.ended()
        await spare.discard()


async def test_a_job_that_dies_with_the_preloader_is_an_outcome(preloader: Preloader, ground: Ground) -> None:
    spare = await fork(preloader)

    async def work() -> None:
        async with spare.attended():
            await spare.begin("cuda", "cpu", None)
            os.kill(itself(preloader.pid, ground), signal.SIGKILL)
            await run(spare, "import signal\nsignal.pause()")

    with anyio.fail_after(PATIENCE_S), pytest.raises(Stopped):
        await work()


async def test_what_a_dead_spare_left_behind_is_ended(preloader: Preloader, ground: Ground) -> None:
    spare = await fork(preloader)
    async with spare.attended():
        await spare.begin("cuda", "cpu", None)
        await run(spare, "import os, signal\nif os.fork() == 0:\n    os.setsid()\n    signal.pause()\n" + RUNS)
        with Watched(tree(spare.handle.pid)) as watched:
            # Its first process alone, which holds the others together.
            os.kill(spare.handle.pid, signal.SIGKILL)
            await watched.end()


async def test_a_preloader_that_was_closed_makes_no_spare(ground: Ground, light: None) -> None:
    before = open_descriptors()
    async with background() as tasks:
        preloader = await start(ground, tasks)
        assert preloader.alive
        for _ in range(2):
            await preloader.close()
            assert not preloader.alive
        await refused(preloader)
    await descriptors_become(before)


async def test_a_spare_that_dies_before_it_is_ready_tells_its_last_words(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = "def crash(*_, **__):\n    raise RuntimeError('out of luck')\nprogram.serve.serve = crash"
    preloading(monkeypatch, crash)
    async with background() as tasks:
        preloader = await start(ground, tasks)
        before = open_descriptors()
        problem = await refused(preloader)
        await descriptors_become(before)
        await preloader.close()
    assert "ended before it was ready (exit code 1)" in problem.message
    assert "RuntimeError: out of luck" in (problem.output or "")


async def test_a_spare_that_the_kernel_refuses_is_unavailable_with_the_reason(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = "def refuse():\n    raise BlockingIOError(11, 'Resource temporarily unavailable')\nos.fork = refuse"
    preloading(monkeypatch, refuse)
    async with background() as tasks:
        preloader = await start(ground, tasks)
        for _ in range(2):
            assert "fork: Resource temporarily unavailable" in (await refused(preloader)).message
        assert preloader.alive
        await preloader.close()


async def test_a_spare_without_a_descriptor_left_is_unavailable_and_leaves_none(
    preloader: Preloader, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, number = open_descriptors(), 0

    def refuse() -> tuple[int, int]:
        nonlocal number
        number += 1
        if number % 2 == 0:
            raise OSError(24, "Too many open files")
        return os.pipe()

    monkeypatch.setattr("tritonforge.sandbox.spares.make_pipe", refuse)
    for _ in range(2):
        assert "Too many open files" in (await refused(preloader)).message
    assert open_descriptors() <= before + 2
    assert preloader.alive


async def test_making_a_spare_can_be_cancelled_at_any_moment(preloader: Preloader) -> None:
    await (await fork(preloader)).discard()
    before, alone, number, reached = open_descriptors(), tree(preloader.pid), 0, True

    async def make() -> None:
        await (await fork(preloader)).discard()

    while reached:
        number += 1
        scope = anyio.CancelScope()
        attempt = CancelledAt(make(), number, scope)
        with scope:
            await attempt
        reached = attempt.reached
        await descriptors_become(before)
        # The next one is born after what was given up, so that all of it shows by now.
        spare = await fork(preloader)
        with Watched(tree(preloader.pid) - alone - tree(spare.handle.pid)) as watched:
            await watched.end()
        await spare.discard()
    assert number > 3


async def test_starting_a_preloader_can_be_cancelled_at_any_moment(ground: Ground, light: None) -> None:
    before, outside, number, reached = open_descriptors(), set(children_of(os.getpid())), 0, True

    async def make(tasks: TaskGroup) -> None:
        await (await start(ground, tasks)).close()

    while reached:
        number += 1
        async with background() as tasks:
            scope = anyio.CancelScope()
            attempt = CancelledAt(make(tasks), number, scope)
            with scope:
                await attempt
            reached = attempt.reached
        await descriptors_become(before)
        assert set(children_of(os.getpid())) <= outside
    assert number > 3


async def test_a_preloader_that_takes_too_long_is_unavailable(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    hang = "import signal\nprint('still here', flush=True)\nsignal.pause()"
    preloading(monkeypatch, hang)
    before = open_descriptors()
    async with background() as tasks:
        with pytest.raises(Stopped) as caught:
            await start(ground, tasks, start_s=1.0)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert "took longer than 1 s" in caught.value.problem.message
    assert caught.value.problem.output == "still here\n"
    await descriptors_become(before)


async def test_a_preloader_that_ends_early_tells_its_last_words(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = "raise RuntimeError('out of luck')"
    preloading(monkeypatch, crash)
    async with background() as tasks:
        with pytest.raises(Stopped, match="ended before it was ready") as caught:
            await start(ground, tasks)
    assert "RuntimeError: out of luck" in (caught.value.problem.output or "")


COMPILES = """
def compile_once(*_, **__):
    raise {error}
warm.compile_once = compile_once
program.warm_up = lambda options: program.compile_first("/no/cache", driver=False)
"""


async def test_a_preloader_that_lacks_a_c_compiler_makes_spares_all_the_same(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    preloading(monkeypatch, COMPILES.format(error="RuntimeError('Failed to find C compiler')"))
    async with background() as tasks:
        preloader = await start(ground, tasks)
        await (await fork(preloader)).discard()
        await preloader.close()


async def test_a_preloader_whose_first_compile_fails_unexpectedly_tells_how(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    preloading(monkeypatch, COMPILES.format(error="LookupError('out of luck')"))
    async with background() as tasks:
        with pytest.raises(Stopped, match=r"ended before it was ready \(exit code 1\)") as caught:
            await start(ground, tasks)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert (caught.value.problem.output or "").endswith("LookupError: out of luck\n")


async def test_without_namespaces_the_folder_for_temporary_files_tells_what_belongs_together(tmp_path: Path) -> None:
    def start(folder: str) -> subprocess.Popen[bytes]:
        script = "setsid cat & exec cat"
        return subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE, env={"TMPDIR": folder})

    with start(str(tmp_path)) as one, start(f"{tmp_path}-other") as other:
        with Watched(tree(one.pid)) as watched:
            kill_marked(tmp_path)
            await watched.end()
        assert other.poll() is None
        other.kill()


def environment_with(folder: Path, **packages: str) -> Path:
    """The interpreter of an environment in which packages seem to be installed: their metadata alone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pretend(folder / "lib" / PYTHON / "site-packages", **packages)
    return folder / "bin" / "python"


def pretend(site: Path, **packages: str) -> None:
    for name, version in packages.items():
        metadata = site / f"{name}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


async def problem_of(python: str | Path, ground: Ground) -> Problem:
    """Why this interpreter is of no use, told by each job."""
    with pytest.MonkeyPatch.context() as patch:
        if not ground[1].sealed:
            patch.setattr("tritonforge.sandbox.rehearsal.find_bwrap", lambda: None)
        async with LocalExecutor(Host(str(python), Limits())) as executor:
            with anyio.fail_after(PATIENCE_S), pytest.raises(Stopped) as caught:
                async with executor.submit(JOB):
                    pass
            with anyio.fail_after(PATIENCE_S), pytest.raises(Stopped):
                await executor.environment()
    assert caught.value.kind is Kind.UNAVAILABLE
    return caught.value.problem


async def test_an_interpreter_without_triton_is_unavailable_with_the_fix(ground: Ground, tmp_path: Path) -> None:
    python = environment_with(tmp_path / "env", torch="2.13.0")
    problem = await problem_of(python, ground)
    assert problem.message == f"triton is not installed for {python}"
    assert "pip install 'triton>=3.4'" in (problem.likely_fix or "")


async def test_packages_of_the_user_alone_are_found(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    pretend(tmp_path / "home/.local/lib" / PYTHON / "site-packages", torch="2.7.1")
    problem = await problem_of(getattr(sys, "_base_executable", sys.executable), ground)
    assert "torch 2.7.1 is too old" in problem.message


async def test_an_interpreter_that_is_gone_by_now_is_unavailable(ground: Ground, light: None) -> None:
    before = open_descriptors()
    async with background() as tasks:
        with anyio.fail_after(PATIENCE_S), pytest.raises(Stopped) as caught:
            await start((Interpreter("/no/such/python", ()), ground[1]), tasks)
    assert caught.value.kind is Kind.UNAVAILABLE
    problem = caught.value.problem
    assert "No such file or directory" in f"{problem.message} {problem.output}"
    await descriptors_become(before)


@pytest.mark.parametrize("way", ["links in it", "all of it a link"])
async def test_an_interpreter_below_tmp_works_sealed(sealed: Ground, light: None, tmp_path: Path, way: str) -> None:
    env, own = tmp_path / "env", Path(sys.prefix)
    if way == "links in it":
        # As made by hand: nothing in it but links to an environment that lies elsewhere.
        for folder in (env / "bin", env / "lib" / PYTHON):
            folder.mkdir(parents=True)
        (env / "bin" / "python").symlink_to(sys.executable)
        (env / "lib" / PYTHON / "site-packages").symlink_to(own / "lib" / PYTHON / "site-packages")
        (env / "pyvenv.cfg").write_text((own / "pyvenv.cfg").read_text())
    else:
        env.symlink_to(own)
    text = "import sys, os, numpy\nsay([sys.executable, sys.prefix, os.access(sys.prefix, os.W_OK)])"
    host = Host(str(env / "bin" / "python"), Limits(), require_sandbox=True)
    async with LocalExecutor(host) as executor, executor.submit(JOB) as worker:
        assert await say(worker, text) == [str(env / "bin" / "python"), str(env), False]


async def test_a_file_below_tmp_that_a_variable_names_is_there_sealed(
    sealed: Ground, light: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ptxas = tmp_path / "ptxas"
    ptxas.write_text("assembles")
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(ptxas))
    host = Host(sys.executable, Limits(), require_sandbox=True)
    async with LocalExecutor(host) as executor, executor.submit(JOB) as worker:
        assert await say(worker, f"say(open({str(ptxas)!r}).read())") == "assembles"
