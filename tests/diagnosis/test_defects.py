"""The defects that are planted for a real GPU: each is on top on its line, and gone after its rewrite."""

import ast
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.profiling.compiler.signatures.shown import TRITON
from tests.sandbox.conftest import H100
from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.facts import Facts
from tritonforge.sandbox.isolation import WORKER_FOLDER

from .conftest import SIGNATURES, read
from .defect import CASE, Defect, names, read_defect
from .planted import first

needs_triton = pytest.mark.skipif(TRITON != (3, 7), reason="defects were chosen for the compiler of Triton 3.7")
SIDES = ("slow", "fixed")
HEAVY = ("p4_unrolled", "t1_two_warps")
"""Take a dozen times as long to compile as others; their rules have small kernels of their own."""
COMPILED = [name for name in names() if name not in HEAVY]
FIXED = (
    "a3_half_atomics",
    "g1_few_tiles",
    "i1_exp",
    "l7_sum_in_loop",
    "p5_prefetched",
    "r1_four_pieces",
    "t4_ieee",
    "v9_pairs",
)
"""Whose rewrite is compiled here, one a family: each of all 49 takes half a second of a core, and small twins show the
same of every rule."""
PROCESSES = 2
"""That compile: a machine of CI has so many cores."""
LAUNCHED = """
import importlib
import importlib.util
import sys

# Large tensors take no memory: nothing runs.
placeholders = importlib.import_module("tritonforge_worker.placeholders")


def launch(stem, path):
    spec = importlib.util.spec_from_file_location(stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    spec.loader.exec_module(module)
    with placeholders.Untouched():
        inputs = module.make_inputs(**module.CASES[{case!r}], device="cuda")
        getattr(module, module.ENTRY)(*inputs)


LAUNCHES = {{stem: lambda stem=stem, path=path: launch(stem, path) for stem, path in {files!r}.items()}}
"""


def compile_defects(chosen: Sequence[Defect], out: Path) -> None:
    """Compiles each, and some rewrites, for an H100; what a launch leaves goes to `NAME_SIDE.json`."""
    files: dict[str, str] = {}
    for defect in chosen:
        sides = SIDES if defect.name in FIXED else SIDES[:1]
        for side, text in zip(sides, (defect.text, defect.fixed), strict=False):
            path = out / f"{defect.name}_{side}.py"
            path.write_text(text)
            files[path.stem] = str(path)
    environment = {"TRITON_CACHE_DIR": str(out / "cache"), "HOME": str(out), "PATH": "/usr/bin:/bin"}
    running: list[tuple[subprocess.Popen[bytes], Path]] = []
    for number in range(PROCESSES):
        share = dict(list(files.items())[number::PROCESSES])
        launched, said = out / f"launched_{number}.py", out / f"said_{number}"
        launched.write_text(LAUNCHED.format(case=CASE, files=share))
        words = [str(WORKER_FOLDER / "__main__.py"), H100.model_dump_json(), str(out), str(launched)]
        command = [sys.executable, "-P", str(SIGNATURES / "compile_launches.py"), *words]
        with said.open("wb") as stderr:
            running.append((subprocess.Popen(command, env=environment, stderr=stderr), said))
    for process, said in running:
        assert process.wait() == 0, said.read_text(errors="replace")[-4000:]


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Defect, str], Facts]:
    """All facts of a side's launch."""
    out = tmp_path_factory.mktemp("defects")
    compile_defects([read_defect(name) for name in COMPILED], out)

    def facts(defect: Defect, side: str) -> Facts:
        return read(defect.text if side == "slow" else defect.fixed, out / f"{defect.name}_{side}.json")

    return facts


def test_there_are_enough_defects_of_many_kinds() -> None:
    found = [read_defect(name) for name in names()]
    assert len(found) >= 32
    assert len({defect.id for defect in found}) >= 30


@pytest.mark.parametrize("name", names())
def test_a_rewrite_applies_and_both_texts_are_python(name: str) -> None:
    defect = read_defect(name)
    assert defect.fixed != defect.text
    ast.parse(defect.text)
    ast.parse(defect.fixed)
    assert name.startswith(defect.id.lower() + "_")


@needs_triton
@pytest.mark.xdist_group("defects")
@pytest.mark.parametrize("name", COMPILED)
def test_a_defect_is_on_top_on_its_line(launched: Callable[[Defect, str], Facts], name: str) -> None:
    defect = read_defect(name)
    top = first(diagnose(launched(defect, "slow")))
    assert top.id == defect.id
    assert top.line is None or abs(top.line - defect.line) <= 1


@needs_triton
@pytest.mark.xdist_group("defects")
@pytest.mark.parametrize("name", FIXED)
def test_a_rewrite_takes_its_defect_away(launched: Callable[[Defect, str], Facts], name: str) -> None:
    defect = read_defect(name)
    told = diagnose(launched(defect, "fixed"))
    assert defect.id not in [finding.id for finding in told.findings + told.hypotheses]
