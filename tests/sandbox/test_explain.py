"""Captured kernels, looked at again: what the compiler said of them, and their machine code as text."""

import hashlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.sandbox.conftest import H100, KERNEL_HEAD
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor
from tritonforge.sandbox.facts import Capture
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.protocol import Frame
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.workers import KernelWorker, capture_worker

pytestmark = pytest.mark.anyio

TWO = """
x = torch.randn(4096, device='cuda')
launch(x, torch.empty_like(x))
launch(x, x, num_warps=1)
"""
# Triton asks for the version first, and takes its own program where there is none.
FAILING = r"""
import os
with open("nv", "w") as program:
    program.write("#!/bin/sh\n[ $1 = --version ] && echo release 13.1 || { echo can not >&2; exit 3; }\n")
os.chmod("nv", 0o700)
os.environ["TRITON_NVDISASM_PATH"] = os.path.abspath("nv")
"""


@pytest.fixture
async def kernels(executor: Executor) -> AsyncGenerator[KernelWorker]:
    async with capture_worker(executor, target=H100) as worker:
        yield worker


async def captured(kernels: KernelWorker, rest: str) -> Capture:
    await kernels.run_file(Source(KERNEL_HEAD + rest, "kernel.py", None), limit_s=60.0)
    return await kernels.captured()


def codes(capture: Capture) -> list[str]:
    return [hashlib.sha256(capture.blobs[launch.assembly["cubin"]]).hexdigest() for launch in capture.launches]


class Answering:
    """Stands in for a worker's process: it says what it is told to say."""

    def __init__(self, explained: list[dict[str, Any]], *blobs: bytes) -> None:
        self._frame = Frame({"ok": True, "explained": explained}, list(blobs))

    async def request(self, operation: str, **fields: object) -> Frame:
        return self._frame


def worker_that_says(*records: dict[str, Any], blobs: tuple[bytes, ...] = ()) -> KernelWorker:
    process: Any = Answering([{"said": [], "sass": None, "reason": None, **record} for record in records], *blobs)
    return KernelWorker(process)


async def test_each_kernel_that_is_asked_for_is_disassembled(kernels: KernelWorker) -> None:
    first, second = codes(await captured(kernels, TWO))
    found = await kernels.explain([first, second, "0" * 64])
    assert found.keys() == {first, second}
    texts = [each.sass or "" for each in found.values()]
    assert all("EXIT" in text and '//## File "' in text for text in texts)
    assert texts[0] != texts[1]
    assert [each.reason for each in found.values()] == [None, None]
    assert await kernels.explain([second]) == {second: found[second]}


async def test_the_disassembler_is_that_of_the_environment_and_its_failure_is_the_reason(kernels: KernelWorker) -> None:
    (code, _) = codes(await captured(kernels, FAILING + TWO))
    (found,) = (await kernels.explain([code])).values()
    assert (found.sass, found.reason) == (None, "nvdisasm ended with exit code 3: can not")


async def test_what_was_not_asked_for_is_left_out() -> None:
    worker = worker_that_says({"code": "a", "sass": 0}, {"code": "b"}, blobs=(b"text \xff",))
    assert list(await worker.explain(["a"])) == ["a"]
    assert (await worker.explain(["a"]))["a"].sass == "text \ufffd"


@pytest.mark.parametrize(
    "record",
    [
        {"code": "a", "sass": 1},
        {"code": "a", "sass": -1},
        {"code": "a", "said": [1]},
        {"code": "a", "said": ["x" * 2_000]},
        {"code": "a", "more": 1},
        {"code": "a" * 65},
    ],
)
async def test_a_reply_of_another_form_is_not_believed(record: dict[str, Any]) -> None:
    with pytest.raises(Stopped) as raised:
        await worker_that_says(record, blobs=(b"text",)).explain(["a"])
    assert raised.value.kind is Kind.CHEATING
