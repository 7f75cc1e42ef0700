# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""Forms that some version of Triton has and others don't: each is understood, whichever one is installed."""

import importlib
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import triton
import triton.language as tl

ROOT = Path(__file__).parents[3]
PLAIN = (0x7000, 3, 4, 7, [16, 16], [64, 64], [64, 1], 0)
"""Address, swizzle, bytes and type of elements, box, shape, strides, padding."""


@triton.jit
def strided(x_ptr, out_ptr):
    at = tl.arange(0, 128)
    x = tl.load(x_ptr + at * 2)
    tl.store(out_ptr + at, x)


@pytest.fixture
def versions(worker):
    return importlib.import_module(f"{worker.__name__}.versions")


@pytest.fixture
def nvidia_driver(monkeypatch):
    """Triton's launcher, with a `make_tensordesc_arg` of a test's own."""
    from triton.backends.nvidia import driver

    def replace(make):
        monkeypatch.setattr(driver, "make_tensordesc_arg", make)

    return replace


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"num_ctas": 2, "cluster_dims": (1, 2, 1)}, (1, 2, 1)),
        ({"num_ctas": 2}, (2, 1, 1)),
        ({"num_ctas": 1, "cluster_dims": (1, 1, 1)}, (1, 1, 1)),
        ({"num_ctas": 1, "cluster_dims": (2, 1, 1)}, (1, 1, 1)),
        ({"num_ctas": 1}, (1, 1, 1)),
    ],
)
def test_a_cluster_is_told_by_its_dimensions_or_its_size(versions, metadata, expected) -> None:
    assert versions.cluster(SimpleNamespace(**metadata)) == expected


@pytest.fixture
def compile_load(versions, monkeypatch, tmp_path):
    """Compiles a strided load, which Triton writes as inline assembly, for sm_90: the PTX with its positions."""
    compiler, backend = (importlib.import_module(f"triton.{name}") for name in ("compiler", "backends.nvidia.compiler"))
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    monkeypatch.setattr(backend.CUDABackend, "make_ptx", backend.CUDABackend.make_ptx)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32"}

    def ptx() -> str:
        return compiler.compile(compiler.ASTSource(strided, signature, {}), target=target).asm["ptx"]

    return ptx


def test_inline_assembly_is_on_the_line_that_it_is_written_on(versions, compile_load) -> None:
    begin = strided.starting_line_number
    (load,) = (begin + at for at, line in enumerate(strided.src.splitlines(), 1) if "tl.load" in line)
    versions.keep_lines()
    versions.keep_lines()
    here, lines = 0, []
    for line in compile_load().splitlines():
        if position := re.match(r"\s*\.loc\s+\d+ (\d+)", line):
            here = int(position[1])
        elif "ld.global" in line:
            lines.append(here)
    assert set(lines) == {load}


def test_only_positions_inside_of_inline_assembly_go(versions) -> None:
    before = "\t.loc\t1 8 9\n\t// begin inline asm\n"
    after = "\tmov.u32 %r1, 0x0;\n{}\tld.global.b32 {{ %r1 }}, [ %rd1 + 0 ];\n\t// end inline asm\n\t.loc\t1 9 5\n"
    text = before + "\t.loc\t1 8 9 // k.py:8:9\n" + after.format("\t.loc\t1 9 9 // k.py:9:9\n")
    assert versions.without_inner_lines(text * 2) == (before + after.format("")) * 2
    assert versions.without_inner_lines(before) == before


def test_kernels_are_compiled_side_by_side_only_where_one_that_fails_is_passed_over(versions, monkeypatch) -> None:
    name = "triton.runtime._async_compile"
    for mode, expected in ((lambda executor, *, ignore_errors: None, True), (lambda executor: None, False)):
        module = SimpleNamespace(AsyncCompileMode=mode)
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr("triton.runtime._async_compile", module, raising=False)
        assert (versions.async_compile() is module) is expected
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr("triton.runtime._async_compile")
    assert versions.async_compile() is None


def test_a_kernel_without_room_for_a_profiler_is_told_from_one_that_needs_none(versions) -> None:
    assert versions.profiler_bytes(SimpleNamespace()) is None
    assert versions.profiler_bytes(SimpleNamespace(profile_scratch_size=0)) == 0


def test_a_kernel_may_have_no_tensor_maps(versions) -> None:
    assert versions.tensor_maps(SimpleNamespace()) == []
    assert versions.tensor_maps(SimpleNamespace(tensordesc_meta=None)) == []
    assert versions.tensor_maps(SimpleNamespace(tensordesc_meta=({"swizzle": 3},))) == [{"swizzle": 3}]


def test_descriptors_are_asked_for_with_as_many_arguments_as_triton_takes(versions, nvidia_driver) -> None:
    nvidia_driver(lambda value, tensor_map: (value, tensor_map))
    assert versions.descriptor_arguments("descriptor", "map") == ["descriptor", "map"]
    nvidia_driver(lambda value, tensor_map, _: (value, tensor_map, _))
    assert versions.descriptor_arguments("descriptor", "map") == ["descriptor", "map", None]


@pytest.mark.parametrize("flags", [0, 1, 2])
def test_flags_are_between_the_two_times_that_shape_and_strides_are_given(versions, flags: int) -> None:
    given = ["base", 8, 16, 16, 1, *[True] * flags, 8, 16, 16, 1]
    assert versions.descriptor_flags(given, 2) == flags


def test_a_tensor_map_is_the_same_where_its_place_comes_first(versions) -> None:
    assert tuple(versions.encoding(PLAIN)) == PLAIN
    assert tuple(versions.encoding((0x9000, *PLAIN[:-1]))) == PLAIN


def test_only_some_interpreters_know_block_pointers_and_padding(versions) -> None:
    assert not versions.has_block_pointers(SimpleNamespace())
    assert versions.has_block_pointers(SimpleNamespace(create_tensor_pointer_load=print))
    assert versions.padding(SimpleNamespace()) is None
    assert versions.padding(SimpleNamespace(padding="nan")) == "nan"


def test_the_oldest_triton_that_is_allowed_is_the_oldest_that_is_tested(versions) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = ".".join(map(str, versions.OLDEST))
    assert f"triton>={oldest}" in project["optional-dependencies"]["torch"]
    assert f"triton=={oldest}.0" in (ROOT / ".ci" / "triton-oldest.txt").read_text().split()
