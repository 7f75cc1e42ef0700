"""The first step with an artefact: its task is made once, and again where the artefact or the machine has changed."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.server.adapters.files import SCALE, SPEED, TEST, bench_file
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.adapters.find import made_of
from tritonforge.server.adapters.ground import Grounded
from tritonforge.server.adapters.model import Adapted
from tritonforge.server.campaign import adapting as module
from tritonforge.server.campaign.adapting import adapted, record
from tritonforge.server.campaign.folder import Adaptation, CampaignFolder
from tritonforge.server.campaign.model import Entry, KernelRecord, Plan

pytestmark = pytest.mark.anyio


class Artefact:
    """An artefact, and a machine on which its task is tried in a made-up way."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kernels = path / "kernels"
        self.kernels.mkdir()
        self.path = bench_file(self.kernels)
        self.entry = Entry(name="scale", path=self.path, lines=20)
        self.folder = CampaignFolder(path / "campaign")
        self.on_gpu = True
        self.tried = 0
        self.fails: BaseException | None = None
        self.why_not: str | None = None
        monkeypatch.setattr(module, "ground", self._ground)
        monkeypatch.setattr(module, "settle", self._settle)

    async def has_gpu(self) -> bool:
        return self.on_gpu

    async def _ground(self, services: Any, tasks: list[Adapted], **more: Any) -> Grounded:
        self.tried += 1
        if self.fails is not None:
            raise self.fails
        kind = None if self.why_not is None else Kind.WRONG
        return Grounded(tasks[0].assuming("as the GPU shows"), 2, self.why_not, kind)

    async def _settle(self, services: Any, tasks: list[Adapted], **more: Any) -> Any:
        self.tried += 1
        task = SimpleNamespace(cases=dict.fromkeys("abc"))
        return SimpleNamespace(adapted=tasks[0], dropped={"b": "why"}, task=task)

    async def make(self, **plan: Any) -> Adaptation | KernelRecord:
        services: Any = self
        given = Plan.model_validate({"folder": self.kernels, "agent": "tune", **plan})
        return await adapted(services, self.folder, given, self.entry)

    def written(self) -> dict[str, str]:
        place = self.folder.kernel("scale")
        return {path.name: path.read_text() for path in place.iterdir()} if place.exists() else {}


@pytest.fixture
def artefact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Artefact:
    return Artefact(tmp_path, monkeypatch)


def is_task(made: Adaptation | KernelRecord) -> Adaptation:
    assert isinstance(made, Adaptation)
    return made


def is_record(made: Adaptation | KernelRecord) -> KernelRecord:
    assert isinstance(made, KernelRecord)
    return made


async def test_kernel_and_task_are_written_with_what_was_assumed(artefact: Artefact) -> None:
    made = is_task(await artefact.make())
    assert (made.form, made.entry, made.cases, made.on_gpu, made.why_not) == ("tritonbench", "scaled", 2, True, None)
    assert made.assumptions[-1] == "as the GPU shows"
    files = artefact.written()
    assert files.keys() == {"kernel.py", "task.py", "adapted.json"}
    assert "def scaled(x" in files["kernel.py"]
    assert "- as the GPU shows" in files["task.py"]


async def test_a_task_is_made_once(artefact: Artefact) -> None:
    first = await artefact.make()
    assert await artefact.make() == first
    os.utime(artefact.path, (1, 1))
    assert await artefact.make() == first
    assert artefact.tried == 1


async def test_a_task_is_made_again_where_the_artefact_has_changed(artefact: Artefact) -> None:
    first = is_task(await artefact.make())
    bench_file(artefact.kernels, TEST, SCALE.replace("BLOCK=256", "BLOCK=512"))
    second = is_task(await artefact.make())
    assert artefact.tried == 2
    assert first.made_of != second.made_of
    assert "BLOCK=512" in artefact.written()["kernel.py"]


async def test_a_performance_file_is_part_of_it(artefact: Artefact) -> None:
    place = artefact.kernels.parent / "perf"
    place.mkdir()
    await artefact.make(performance=place)
    (place / "scale_perf.py").write_text(SPEED)
    made = is_task(await artefact.make(performance=place))
    assert artefact.tried == 2
    assert "a performance file was found and read for its sizes" in made.assumptions


async def test_an_artefact_that_is_gone_leaves_the_task_that_is_there(artefact: Artefact) -> None:
    first = await artefact.make()
    artefact.path.unlink()
    assert await artefact.make() == first


async def test_a_task_that_was_made_without_a_gpu_is_tried_on_one(artefact: Artefact) -> None:
    artefact.on_gpu = False
    first = is_task(await artefact.make())
    assert (first.on_gpu, first.cases) == (False, 2)
    artefact.on_gpu = True
    second = is_task(await artefact.make())
    artefact.on_gpu = False
    # And not the other way round.
    assert await artefact.make() == second
    assert (second.on_gpu, artefact.tried) == (True, 2)


async def test_why_nothing_can_be_judged_is_kept(artefact: Artefact) -> None:
    artefact.why_not = "3 elements"
    made = is_task(await artefact.make())
    assert (made.why_not, made.kind) == ("3 elements", "wrong")
    assert artefact.folder.adaptation("scale") == made


@pytest.mark.parametrize("text", ["def f(:", "x = 1\n"])
async def test_an_artefact_of_no_form_is_recorded_without_paths_of_this_machine(artefact: Artefact, text: str) -> None:
    artefact.path.write_text(text)
    made = is_record(await artefact.make())
    assert (made.outcome, made.failure_kind, made.path, made.lines) == ("not_loaded", "rejected", "scale.py", 20)
    assert made.why is not None
    assert "scale.py" in made.why
    assert str(artefact.kernels.parent) not in made.why
    assert made.seconds.keys() == {"adapt"}
    assert artefact.written() == {}


async def test_an_artefact_of_which_no_reading_can_be_used_is_recorded(artefact: Artefact) -> None:
    artefact.fails = Stopped(Kind.COMPILE_ERROR, Problem(stage="compile", message="no\nsuch thing"))
    made = is_record(await artefact.make())
    assert (made.outcome, made.failure_kind, made.why) == ("not_loaded", "compile_error", "no such thing")


async def test_a_fault_of_ours_costs_one_artefact(artefact: Artefact) -> None:
    artefact.fails = RecursionError("too deep")
    made = is_record(await artefact.make())
    assert (made.outcome, made.failure_kind) == ("failed", "internal_error")
    assert made.why == "internal error (see error.txt): RecursionError: too deep"
    assert "Traceback" in artefact.written()["error.txt"]


@pytest.mark.parametrize("kind", [Kind.UNAVAILABLE, Kind.CANCELLED])
async def test_what_no_artefact_can_help_is_no_record(artefact: Artefact, kind: Kind) -> None:
    artefact.fails = Stopped(kind, Problem(stage="environment", message="the GPU is lost"))
    with pytest.raises(Stopped):
        await artefact.make()
    assert artefact.written() == {}


async def test_a_task_that_is_half_made_is_none(artefact: Artefact, monkeypatch: pytest.MonkeyPatch) -> None:
    await artefact.make()
    bench_file(artefact.kernels, TEST, SCALE.replace("BLOCK=256", "BLOCK=512"))
    whole = module.write

    def dies(file: Path, text: str) -> None:
        if file.name == "task.py":
            raise KeyboardInterrupt
        whole(file, text)

    monkeypatch.setattr(module, "write", dies)
    with pytest.raises(KeyboardInterrupt):
        await artefact.make()
    # The new kernel is never taken for that of the old task.
    assert artefact.folder.adaptation("scale") is None


def test_a_record_names_its_artefact_by_its_place_in_the_folder() -> None:
    plan = Plan(folder=Path("/home/me/kernels"), agent="tune")
    inside = Entry(name="a", path=Path("/home/me/kernels/sub/a"), lines=1)
    outside = Entry(name="b", path=Path("/elsewhere/b.py"), lines=1)
    assert (record(inside, plan).path, record(outside, plan).path) == ("sub/a", "b.py")


@pytest.mark.parametrize("changed", ["test_scale.py", "scaling.py", "notes.md"])
def test_a_test_file_is_made_of_itself_and_of_the_kernels_that_it_imports(tmp_path: Path, changed: str) -> None:
    for name, text in {"test_scale.py": "from scaling import scaled\n", "scaling.py": SCALE, "notes.md": ""}.items():
        (tmp_path / name).write_text(text)
    before = made_of(tmp_path / "test_scale.py")
    with (tmp_path / changed).open("a") as file:
        file.write("\n")
    assert (made_of(tmp_path / "test_scale.py") == before) is (changed == "notes.md")


def test_a_folder_is_made_of_the_files_that_its_task_names(tmp_path: Path) -> None:
    assert made_of(tmp_path) is None
    (tmp_path / "task.yml").write_text("files: []\n")
    before = made_of(tmp_path)
    (tmp_path / "submission.py").write_text("x = 1\n")
    assert None not in (before, made_of(tmp_path))
    assert made_of(tmp_path) != before
