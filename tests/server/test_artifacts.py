"""Artifacts: stored by content, complete or not at all, found only by names that lead nowhere else."""

from pathlib import Path

import anyio
import pytest

from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.artifacts import Artifact, ArtifactStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "state")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


async def test_what_was_stored_is_found_by_the_parts_of_its_uri(store: ArtifactStore) -> None:
    stored = await store.put("sin.ptx", b"text")
    assert stored.uri == f"tritonforge://artifacts/{stored.digest}/sin.ptx"
    assert store.find(stored.digest, stored.name) == stored.path
    assert stored.path.read_bytes() == b"text"


async def test_the_same_content_is_stored_once(store: ArtifactStore, tmp_path: Path) -> None:
    first, second = await store.put("sin.ptx", b"text"), await store.put("sin.ptx", b"text")
    assert first == second
    assert files(tmp_path) == ["sin.ptx"]


async def test_other_content_under_the_same_name_replaces_nothing(store: ArtifactStore) -> None:
    first, second = await store.put("sin.ptx", b"one"), await store.put("sin.ptx", b"two")
    assert (first.path.read_bytes(), second.path.read_bytes()) == (b"one", b"two")


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("../../etc/passwd", ".._.._etc_passwd"),
        ("a b\0c\n.ptx", "a_b_c_.ptx"),
        ("ядро.ptx", "____.ptx"),
        ("k" * 300 + ".ptx", "k" * 116 + ".ptx"),
    ],
)
async def test_a_name_from_a_kernel_is_made_harmless_and_stays_readable(
    store: ArtifactStore, tmp_path: Path, given: str, safe: str
) -> None:
    stored = await store.put(given, b"text")
    assert stored.name == safe
    assert store.find(stored.digest, stored.name) == stored.path
    assert stored.path.is_relative_to(tmp_path / "state" / "artifacts")


async def test_many_calls_that_store_the_same_content_at_once_all_succeed(store: ArtifactStore, tmp_path: Path) -> None:
    data = b"x" * 2_000_000
    stored: list[Artifact] = []

    async def put() -> None:
        stored.append(await store.put("sin.ptx", data))

    for _ in range(10):
        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(put)
        assert stored[0].path.read_bytes() == data
        stored[0].path.unlink()
    assert len(set(stored)) == 1
    assert files(tmp_path) == []


async def test_a_write_that_fails_leaves_nothing_behind(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(Stopped) as raised:
        await store.put("sin.ptx", b"text")
    assert raised.value.kind is Kind.UNAVAILABLE
    assert "No space left on device" in raised.value.problem.message
    assert files(tmp_path) == []


async def test_a_state_folder_that_cannot_be_written_is_unavailable_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Stopped) as raised:
        await ArtifactStore(tmp_path / "file" / "state").put("sin.ptx", b"text")
    assert raised.value.kind is Kind.UNAVAILABLE
    assert str(tmp_path / "file" / "state") in raised.value.problem.message
    assert "--state-dir" in str(raised.value.problem.likely_fix)


@pytest.mark.parametrize(
    ("digest", "name"),
    [
        ("0123456789abcdef", "other.ptx"),
        ("0123456789abcde", "sin.ptx"),
        ("0123456789abcdef0", "sin.ptx"),
        ("0123456789ABCDEF", "sin.ptx"),
        ("0123456789abcdef\n", "sin.ptx"),
        ("..", "secret"),
        ("0123456789abcdef", ".."),
        ("0123456789abcdef", "."),
        ("0123456789abcdef", "../../secret"),
        ("0123456789abcdef", "/etc/passwd"),
        ("0123456789abcdef", "sin.ptx\n"),
        ("0123456789abcdef", "sin.ptx\0"),
        ("0123456789abcdef", "n" * 121),
        ("0123456789abcdef", ""),
        ("", ""),
    ],
)
def test_what_was_not_stored_is_not_found(tmp_path: Path, digest: str, name: str) -> None:
    folder = tmp_path / "artifacts" / "0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / "sin.ptx").touch()
    for place in (tmp_path, tmp_path / "artifacts"):
        (place / "secret").touch()
    store = ArtifactStore(tmp_path)
    assert store.find("0123456789abcdef", "sin.ptx") is not None
    assert store.find(digest, name) is None
