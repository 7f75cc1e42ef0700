"""Variables that a job brings along for its worker."""

import pytest

from tests.sandbox.light import JOB, run, say
from tritonforge.sandbox.executors.base import Executor, Job

READ = "import os\nsay([os.environ.get(name) for name in ('OF_A_JOB', 'OMP_NUM_THREADS', 'PYTHONHASHSEED')])"


@pytest.mark.anyio
@pytest.mark.usefixtures("harmless_race")
async def test_a_job_s_variables_are_its_worker_s_over_the_usual_ones_and_nobody_else_s(executor: Executor) -> None:
    async with executor.submit(JOB) as worker:
        usual = await say(worker, READ)
    assert usual[0] is None
    async with executor.submit(Job("cuda", environment={"OF_A_JOB": "yes", "OMP_NUM_THREADS": "77"})) as worker:
        assert await say(worker, READ) == ["yes", "77", usual[2]]
    async with executor.submit(JOB) as worker:
        assert await say(worker, READ) == usual


@pytest.mark.anyio
@pytest.mark.usefixtures("harmless_race")
async def test_a_wrapper_sees_a_job_s_variables_as_well(executor: Executor) -> None:
    # A shell that fails where the variable is not there.
    wrapper = ("/bin/sh", "-u", "-c", 'SEEN="$OF_A_JOB" exec "$@"', "sh")
    async with executor.submit(Job("cuda", wrapper=wrapper, environment={"OF_A_JOB": "yes"})) as worker:
        assert await say(worker, "import os\nsay([os.environ['SEEN'], os.environ['OF_A_JOB']])") == ["yes", "yes"]
        await run(worker, "def entry():\n    pass\n")


def test_only_a_worker_from_nothing_can_have_a_wrapper_or_variables() -> None:
    assert not Job("cuda").cold
    assert not Job("cuda", environment={}).cold
    assert Job("cuda", wrapper=("env",)).cold
    assert Job("cuda", environment={"A": "b"}).cold
