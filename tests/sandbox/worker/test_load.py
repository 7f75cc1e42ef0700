# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""Kernel and task files are executed under their own names; what keeps them from loading is said in their terms."""

import sys

import pytest


@pytest.fixture
def loaded(load, failures, tmp_path, monkeypatch):
    """Executes a text as a worker does, in a scratch folder of its own, and leaves no trace in this process."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.chdir(scratch)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    sources = failures.Sources()

    def run(text, *, name="kernel", stage="load", origin=None):
        module = load.load_module(
            text, name=name, shown_as=f"my/{name}.py", stage=stage, origin=origin, sources=sources
        )
        assert sys.modules[name] is module
        return module

    run.sources = sources
    return run


@pytest.fixture
def failure(loaded, failures):
    """The fields of the failure frame that a text ends in."""

    def run(text, *, stage="load", **more):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - any
            loaded(text, stage=stage, **more)
        return failures.describe(caught.value, stage, loaded.sources)

    return run


HIDDEN = (
    "my/{name}.py imports 'neighbour', which is not installed, and its own folder {folder} is not readable in the "
    "sandbox. If the module lies there, start the server with --allow-read {folder}"
)
IMPORT = "import torch\n\nimport neighbour\n"


def test_a_file_becomes_a_module_whose_source_is_on_disk(loaded, tmp_path):
    module = loaded("VALUE = 7\n")
    assert (module.__name__, module.VALUE) == ("kernel", 7)
    assert (tmp_path / "scratch" / "kernel.py").read_text() == "VALUE = 7\n"


def test_modules_beside_the_file_can_be_imported(loaded, tmp_path):
    (tmp_path / "neighbour.py").write_text("VALUE = 7\n")
    assert loaded("import neighbour\n", origin=str(tmp_path)).neighbour.VALUE == 7


@pytest.mark.parametrize(("name", "stage"), [("kernel", "load"), ("task", "task")])
@pytest.mark.parametrize("statement", ["import neighbour", "from neighbour import x", "import neighbour.more"])
def test_an_import_from_a_folder_that_the_sandbox_hides_says_how_to_open_it(failure, name, stage, statement):
    found = failure(f"import torch\n\n{statement}\n", name=name, stage=stage, origin="/home/someone/project")
    assert (found["kind"], found["stage"]) == ("rejected", stage)
    assert found["message"] == HIDDEN.format(name=name, folder="/home/someone/project")
    assert (found["file"], found["line"]) == (f"my/{name}.py", 3)
    assert f">    3 | {statement}" in found["excerpt"]


def test_a_folder_that_only_leads_to_readable_ones_is_hidden(failure, tmp_path):
    (tmp_path / ".venv").mkdir()
    found = failure(IMPORT, origin=str(tmp_path))
    assert found["message"] == HIDDEN.format(name="kernel", folder=tmp_path)


def test_a_missing_module_is_the_files_own_fault_where_its_folder_is_readable(failure, tmp_path):
    (tmp_path / "kernel.py").write_text(IMPORT)
    found = failure(IMPORT, origin=str(tmp_path))
    assert (found["kind"], found["message"]) == (None, "No module named 'neighbour'")
    assert "ImportError" in found["bases"]


def test_a_missing_module_of_source_text_has_no_folder_to_open(failure):
    found = failure(IMPORT)
    assert (found["kind"], found["message"], found["line"]) == (None, "No module named 'neighbour'", 3)


@pytest.mark.parametrize(
    "statement",
    [
        "import torch.neighbour",
        "from torch import neighbour",
        "from . import neighbour",
        "raise ImportError('odd')",
        "raise ModuleNotFoundError('odd')",
        "import json\nimport json.neighbour",
    ],
)
def test_what_no_folder_could_mend_is_told_as_it_is(failure, statement):
    found = failure(f"{statement}\n", origin="/home/someone/project")
    assert found["kind"] is None
    assert "--allow-read" not in found["message"]
