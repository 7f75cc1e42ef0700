"""What a candidate forges on the private socket is never believed beyond its form, and never harms the parent."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.sandbox.conftest import FIND_SOCKET, SHORT_S, Load, Start, open_descriptors, outcome
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.replies import Values
from tritonforge.sandbox.workers import KernelWorker

pytestmark = pytest.mark.anyio


async def test_what_is_printed_cannot_forge_a_reply(start_any: Start, load: Load) -> None:
    text = (
        FIND_SOCKET + "forged = frame({'ok': True, 'blobs': []})\nfor fd in (1, 2):\n    os.write(fd, forged)\n1 / 0\n"
    )
    async with start_any() as worker:
        kind, problem = await outcome(load, worker, text)
    assert kind is Kind.RUNTIME_ERROR
    assert problem.message == "ZeroDivisionError: division by zero"
    assert "TFW1" in (problem.output or "")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("send(b'\\x00' * 64)", Kind.CHEATING),
        ("send(b'TFW1' + b'\\xff' * 60)", Kind.CHEATING),
        ("send(frame({'ok': True, 'blobs': []}, magic=b'TFW2'))", Kind.CHEATING),
        ("send(frame(b'not json'))", Kind.CHEATING),
        ("send(frame(b'[' * 100000))", Kind.CHEATING),
        ("send(frame([]))", Kind.CHEATING),
        ("send(frame({'ok': True}))", Kind.CHEATING),
        ("send(frame({'ok': True, 'blobs': [1 << 60]}))", Kind.CHEATING),
        ("send(frame({'ok': 'yes', 'blobs': []}))", Kind.CHEATING),
        ("send(frame({'ok': False, 'failure': {'kind': 'ok'}, 'blobs': []}))", Kind.CHEATING),
        ("send(frame({'blobs': []}))", Kind.CHEATING),
        ("send(frame({'ok': True, 'blobs': [5]}) + b'abc'); os._exit(0)", Kind.RUNTIME_ERROR),
        ("send(frame({'ok': True, 'blobs': [5]}) + b'abc'); signal.pause()", Kind.TIMEOUT),
        ("send(b'TFW1'); signal.pause()", Kind.TIMEOUT),
        ("send(frame({'ok': True, 'blobs': [{'size': 10, 'kind': 'memory'}]}))", Kind.CHEATING),
        ("send(frame({'ok': True, 'blobs': [{'size': 10, 'kind': 'disk'}]}))", Kind.CHEATING),
        ("pass_on({'ok': True, 'blobs': [{'size': 10, 'kind': 'memory'}]}, 0)", Kind.CHEATING),
        ("pass_on({'ok': True, 'blobs': [{'size': 10, 'kind': 'memory'}]}, memfd(10, seals=0))", Kind.CHEATING),
        ("pass_on({'ok': True, 'blobs': [{'size': 11, 'kind': 'memory'}]}, memfd(10))", Kind.CHEATING),
        ("os.close(FD)", Kind.RUNTIME_ERROR),
        ("socket.socket(fileno=FD).shutdown(socket.SHUT_RDWR); signal.pause()", Kind.RUNTIME_ERROR),
    ],
)
async def test_what_a_candidate_writes_to_the_socket_is_one_outcome(
    start_any: Start, load: Load, code: str, kind: Kind
) -> None:
    async with start_any(request_s=SHORT_S if kind is Kind.TIMEOUT else 60) as worker:
        found, problem = await outcome(load, worker, f"{FIND_SOCKET}{code}\n")
    assert found is kind
    assert problem.message


@asynccontextmanager
async def answering(start_any: Start, load: Load, header: str) -> AsyncGenerator[KernelWorker]:
    """A kernel worker whose next reply after the one to `load` is forged."""
    async with start_any() as worker:
        text = f"{FIND_SOCKET}send(frame({{'ok': True, 'blobs': []}}))\nsend(frame(json.loads({header!r})))\n"
        yield await load(worker, text)


LAUNCH = (
    '{"kernel": "k", "symbol": "k", "grid": [1, 1, 1], "count": 1, "tuning": false, "num_warps": 4, "num_stages": 3, '
    '"num_ctas": 1, "shared_bytes": 0, "constexprs": {}, "signature": {}, "divisible_by_16": [], "line": 1, '
    '"ptxas_log": null, "assembly": {"ttgir": 0, "ptx": 0}}'
)


def forged_capture(launch: str) -> str:
    return f'{{"ok": true, "launches": [{launch}], "left_out": 0, "blobs": [0]}}'


async def test_assembly_texts_that_nobody_here_may_read_are_cheating(start_any: Start, load: Load) -> None:
    header = json.loads(forged_capture(LAUNCH)) | {"blobs": [{"size": 10, "kind": "memory"}, 0]}
    text = f"{FIND_SOCKET}send(frame({{'ok': True, 'blobs': []}}))\npass_on({header!r}, memfd(10))\n"
    async with start_any() as worker:
        kernels = await load(worker, text)
        with pytest.raises(Stopped) as caught:
            await kernels.capture()
    assert caught.value.kind is Kind.CHEATING
    assert "an assembly text is missing" in caught.value.problem.message


async def test_code_for_another_vendors_gpu_is_cheating(start_any: Start, load: Load) -> None:
    async with answering(start_any, load, forged_capture(LAUNCH)) as kernels:
        kernels.vendor = "amd"
        with pytest.raises(Stopped) as caught:
            await kernels.capture()
    assert caught.value.kind is Kind.CHEATING
    assert "an assembly text is missing" in caught.value.problem.message


async def test_descriptors_that_nothing_announced_are_not_kept(start_any: Start, load: Load) -> None:
    text = f"{FIND_SOCKET}pass_on({{'ok': True, 'blobs': []}}, *range(3), memfd(10), memfd(10, seals=0))\n"
    async with start_any() as worker:
        before = open_descriptors()
        await load(worker, text)
        assert open_descriptors() == before


async def test_names_are_one_line_of_printable_characters(start_any: Start, load: Load) -> None:
    forged = LAUNCH.replace('"kernel": "k"', '"kernel": "k\\n\\nNext: \\u001b[31m"')
    async with answering(start_any, load, forged_capture(forged)) as kernels:
        assert (await kernels.capture()).launches[0].kernel == "k??Next: ?[31m"


async def test_more_launches_than_can_be_read_are_counted(start_any: Start, load: Load) -> None:
    async with answering(start_any, load, forged_capture(", ".join([LAUNCH] * 300))) as kernels:
        capture = await kernels.capture()
        assert (len(capture.launches), capture.left_out) == (256, 44)


async def test_a_sound_capture_is_read(start_any: Start, load: Load) -> None:
    async with answering(start_any, load, forged_capture(LAUNCH)) as kernels:
        assert (await kernels.capture()).launches[0].num_warps == 4


@pytest.mark.parametrize(
    "header",
    [
        '{"ok": true, "blobs": []}',
        '{"ok": true, "launches": null, "left_out": 0, "blobs": []}',
        '{"ok": true, "launches": "abc", "left_out": 0, "blobs": []}',
        '{"ok": true, "launches": [null], "left_out": 0, "blobs": []}',
        '{"ok": true, "launches": [], "left_out": -1, "blobs": []}',
        forged_capture(LAUNCH.replace('"num_ctas": 1', f'"num_ctas": {10**30}')),
        forged_capture(LAUNCH.replace('"num_stages": 3', f'"num_stages": {10**30}')),
        forged_capture(LAUNCH.replace('"shared_bytes": 0', f'"shared_bytes": {10**30}')),
        forged_capture(LAUNCH.replace('"count": 1', '"count": -1')),
        forged_capture(LAUNCH.replace('"line": 1', f'"line": {10**30}')),
        forged_capture(LAUNCH.replace('"ptx": 0', '"ptx": 1')),
        forged_capture(LAUNCH.replace('"ptx": 0', '"ptx": -1')),
        forged_capture(LAUNCH.replace(', "ptx": 0', "")),
        forged_capture(LAUNCH.replace('"num_warps": 4', '"num_warps": 0')),
        forged_capture(LAUNCH.replace('"num_ctas": 1', '"num_ctas": -1')),
        forged_capture(LAUNCH.replace('"shared_bytes": 0', '"shared_bytes": -1')),
        forged_capture(LAUNCH.replace("[1, 1, 1]", "[1, 1, 1e99]")),
        forged_capture(LAUNCH.replace("[1, 1, 1]", "[1, -1, 1]")),
        forged_capture(LAUNCH.replace('"symbol": "k"', '"symbol": "\\ud800"')),
    ],
)
async def test_a_forged_capture_is_cheating(start_any: Start, load: Load, header: str) -> None:
    async with answering(start_any, load, header) as kernels:
        with pytest.raises(Stopped) as caught:
            await kernels.capture()
    assert caught.value.kind is Kind.CHEATING
    assert len(caught.value.problem.message) < 600


@pytest.mark.parametrize("times", ["null", '"abc"', '["x"]', "[[]]", "{}"])
async def test_forged_times_are_cheating(start_any: Start, load: Load, times: str) -> None:
    async with answering(start_any, load, f'{{"ok": true, "call_us": {times}, "blobs": []}}') as kernels:
        with pytest.raises(Stopped) as caught:
            await kernels.call_times(1)
    assert caught.value.kind is Kind.CHEATING


@pytest.mark.parametrize("tree", [float("nan"), {"value": float("inf")}])
async def test_a_forged_result_that_cannot_be_passed_on_is_cheating(start_any: Start, tree: Any) -> None:
    async with start_any() as worker:
        with pytest.raises(Stopped) as caught:
            await KernelWorker(worker).set_inputs(Values(tree, []))
    assert caught.value.kind is Kind.CHEATING
