"""Whatever kernel and task are, each call ends in one clear outcome, with what is needed to mend it."""

from pathlib import Path

import pytest

from tests.faults.evaluations import HEAD, KERNEL, LARGE_TILES, TASK, Tools, entry, failed, replaced
from tritonforge.sandbox.outcome import Kind, Problem

pytestmark = pytest.mark.anyio


# Sources


@pytest.mark.parametrize(
    ("kernel", "task", "words"),
    [
        ("no_such_kernel.py", TASK, "there is no kernel file no_such_kernel.py"),
        (KERNEL, "no_such_task.py", "there is no task file no_such_task.py"),
        ("/", TASK, "/ is a folder, not a file"),
        ("", TASK, "kernel is empty"),
        (KERNEL + "\0\n", TASK, f"the kernel source contains a NUL byte on line {KERNEL.count(chr(10)) + 1}"),
        (KERNEL, TASK + "# \ud800\n", "the task source contains a lone surrogate"),
        (KERNEL + "#\n" * 2_500_000, TASK, "bytes; 1,000,000 are allowed"),
        ("k" * 5_000_000, TASK, "the kernel file can't be read: File name too long"),
    ],
    ids=["kernel file", "task file", "folder", "empty", "NUL", "surrogate", "5 MB", "5 MB without a newline"],
)
async def test_a_source_that_cannot_be_read_is_rejected(tools: Tools, kernel: str, task: str, words: str) -> None:
    for result in (await tools.compile(kernel, task), await tools.check(kernel, task)):
        assert words in failed(result, Kind.REJECTED, "source").message


async def test_a_baseline_that_cannot_be_read_is_rejected(tools: Tools) -> None:
    result = await tools.check(baseline="no_such_file.py")
    assert "there is no baseline file" in failed(result, Kind.REJECTED, "source").message


@pytest.mark.parametrize("tool", ["compile", "check"])
async def test_a_syntax_error_of_a_kernel_file_is_placed(tools: Tools, tool: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(replaced(KERNEL, "def double(x):", "def double(x)"))
    problem = failed(await getattr(tools, tool)(str(path)), Kind.REJECTED, "source")
    assert problem.message == f"{path} is not valid Python: expected ':'"
    assert (problem.file, problem.line) == (str(path), 14)
    assert ">   14 | def double(x)" in (problem.excerpt or "")


async def test_a_syntax_error_of_a_task_is_placed(tools: Tools) -> None:
    problem = failed(await tools.compile(task=replaced(TASK, "return x * 2", "return x *")), Kind.REJECTED, "source")
    assert (problem.file, problem.line) == ("<source>", 12)


@pytest.mark.parametrize("expression", ["(" * 50_000 + ")" * 50_000, "-" * 200_000 + "1", "[" + "x." * 100_000 + "y]"])
async def test_an_expression_too_deep_for_the_parser_is_rejected(tools: Tools, expression: str) -> None:
    failed(await tools.compile(f"{KERNEL}\nz = {expression}\n"), Kind.REJECTED, "source")


# Tasks


@pytest.mark.parametrize(
    ("task", "stage", "words"),
    [
        (TASK.replace("CASES", "CASE"), "task", "CASES must be a dict of named cases"),
        (TASK.replace("ENTRY", "ENTRIES"), "task", "ENTRY must be the name of the kernel file's host function"),
        (TASK.replace("make_inputs", "inputs"), "task", "make_inputs is missing: def make_inputs("),
        (TASK.replace('"n": 1000', '"m": 1000'), "task", "make_inputs can't take case 'train'"),
        (TASK + "IN_PLACE = 5\n", "task", "IN_PLACE must be a tuple of argument names"),
        (TASK + "TOLERANCE = {'float': 1}\n", "task", "TOLERANCE['float'] must be"),
        (TASK + "import sys\nsys.exit(3)\n", "task", "calls sys.exit(3) while it is imported"),
        (TASK + "import no_such_module\n", "task", "No module named 'no_such_module'"),
        (TASK.replace("return (torch", "return [1]\n    return (torch"), "inputs", "returned a list; it must return"),
        (TASK.replace("device=device),)", "device=device), {1})"), "inputs", "make_inputs' result[1] is a builtins."),
        (TASK.replace("device=device),)", "device=device).to_sparse(),)"), "inputs", "only dense strided tensors"),
        (TASK.replace("device=device),)", "device=device), int)"), "inputs", "is a builtins.type; allowed are tensors"),
    ],
    ids=[
        "no CASES", "no ENTRY", "no make_inputs", "parameters", "IN_PLACE", "TOLERANCE", "exits", "import", "a list",
        "a set", "sparse", "a type",
    ],
)  # fmt: skip
async def test_a_task_that_cannot_be_used_is_rejected(tools: Tools, task: str, stage: str, words: str) -> None:
    problem = failed(await tools.compile(task=task), Kind.REJECTED, stage)
    assert words in problem.message


@pytest.mark.parametrize(
    ("task", "stage", "line"),
    [
        (TASK + "raise KeyError('odd')\n", "task", 13),
        (TASK.replace("return (torch", "raise KeyError('odd')\n    return (torch"), "inputs", 8),
    ],
    ids=["at import", "in make_inputs"],
)
async def test_an_exception_of_a_task_is_placed(tools: Tools, task: str, stage: str, line: int) -> None:
    problem = failed(await tools.compile(task=task), Kind.REJECTED, stage)
    assert (problem.message, problem.file, problem.line) == ("KeyError: 'odd'", "<source>", line)
    assert f"> {line:4d} |" in (problem.excerpt or "")


@pytest.mark.parametrize(
    ("task", "stage", "words"),
    [
        (replaced(TASK, "return x * 2", "raise KeyError('odd')"), "reference", "KeyError: 'odd'"),
        (replaced(TASK, "return x * 2", "return None"), "compare", "the reference returned nothing to compare"),
        (replaced(TASK, "reference", "referenz"), "task", "has no reference and no baseline was given"),
        (TASK + "IN_PLACE = ('out',)\n", "task", "IN_PLACE names ['out']; the arguments are ['x']"),
    ],
)
async def test_a_task_that_nothing_can_be_compared_with_is_rejected(
    tools: Tools, task: str, stage: str, words: str
) -> None:
    kernel = replaced(KERNEL, "return out", "return None") if "return None" in task else KERNEL
    assert words in failed(await tools.check(kernel, task), Kind.REJECTED, stage).message


async def test_an_unknown_case_is_rejected_with_the_choice(tools: Tools) -> None:
    for result in (await tools.compile(cases=["trian"]), await tools.check(cases=["trian"])):
        problem = failed(result, Kind.REJECTED, "task")
        assert problem.likely_fix == "Did you mean 'train'? Its cases are: train."


async def test_an_unknown_target_is_rejected_with_the_choice(tools: Tools) -> None:
    problem = failed(await tools.compile(target="h1000"), Kind.REJECTED, "target")
    assert "h1000" in problem.message
    assert "h100" in problem.message.replace("h1000", "")


async def test_a_task_that_hangs_is_a_timeout(hasty: Tools) -> None:
    problem = failed(await hasty.compile(task=TASK + "while True:\n    pass\n"), Kind.TIMEOUT, "task")
    assert problem.message == "loading the task took longer than 3 s and was killed"


async def test_a_task_that_crashes_is_a_runtime_error(tools: Tools) -> None:
    task = replaced(TASK, "    return (torch", "    import ctypes\n    ctypes.string_at(0)\n    return (torch")
    problem = failed(await tools.compile(task=task), Kind.RUNTIME_ERROR, "inputs")
    assert "the process ended during make_inputs (killed by SIGSEGV)" in problem.message


# Kernels that cannot be loaded or launched


async def test_an_entry_that_is_missing_is_rejected_with_what_there_is(tools: Tools) -> None:
    problem = failed(await tools.compile(KERNEL.replace("def double(", "def twice(")), Kind.REJECTED, "load")
    assert "<source> has no function 'double' (the task's ENTRY). It defines: double_kernel, twice." in problem.message


@pytest.mark.parametrize("tool", ["compile", "check"])
async def test_an_entry_that_is_a_kernel_is_rejected(tools: Tools, tool: str) -> None:
    task = replaced(TASK, '"double"', '"double_kernel"')
    problem = failed(await getattr(tools, tool)(task=task), Kind.REJECTED, "load")
    assert problem.message.startswith("'double_kernel' is a Triton kernel; ENTRY must name the host function")


async def test_an_entry_that_is_no_function_is_rejected(tools: Tools) -> None:
    problem = failed(await tools.compile(HEAD + "double = 5\n"), Kind.REJECTED, "load")
    assert problem.message == "'double' in <source> is a int, not a function."


async def test_an_entry_that_launches_nothing_is_rejected(tools: Tools) -> None:
    problem = failed(await tools.compile(HEAD + "def double(x):\n    return x * 2\n"), Kind.REJECTED, "capture")
    assert problem.message == "the entry 'double' ran case 'train' and launched no Triton kernel"


async def test_an_entry_that_launches_nothing_is_not_checked_either(tools: Tools) -> None:
    problem = failed(await tools.check(HEAD + "def double(x):\n    return x * 2\n"), Kind.REJECTED, "run")
    assert "launched no Triton kernel" in problem.message


@pytest.mark.parametrize(
    ("task", "elements"),
    [
        (replaced(TASK, "return x * 2", "return x * float('nan')"), "1,000 elements"),
        (replaced(TASK, '"n": 1000', '"n": 0'), "0 elements"),
    ],
    ids=["all NaN", "empty"],
)
async def test_results_without_a_finite_number_prove_nothing(tools: Tools, task: str, elements: str) -> None:
    kernel = replaced(KERNEL, "x * 2", "x * float('nan')") if "nan" in task else KERNEL
    problem = failed(await tools.check(kernel, task), Kind.REJECTED, "audit")
    assert elements in problem.message


@pytest.mark.parametrize(
    ("grid", "kind", "stage"),
    [
        ("(1, 70000)", Kind.LAUNCH_ERROR, "launch"),
        ("(-1,)", Kind.LAUNCH_ERROR, "launch"),
        ("(x.numel() / 64,)", Kind.RUNTIME_ERROR, "capture"),
        ("(0,)", Kind.REJECTED, "capture"),
    ],
)
async def test_a_grid_that_a_launch_refuses_is_an_outcome(tools: Tools, grid: str, kind: Kind, stage: str) -> None:
    failed(await tools.compile(replaced(KERNEL, "(triton.cdiv(x.numel(), 64),)", grid)), kind, stage)


async def test_an_exception_at_import_is_placed(tools: Tools) -> None:
    problem = failed(await tools.compile(KERNEL + "\nvalue = {}['odd']\n"), Kind.RUNTIME_ERROR, "load")
    assert (problem.message, problem.line) == ("KeyError: 'odd'", KERNEL.count("\n") + 2)


async def test_an_import_that_the_environment_lacks_is_rejected(tools: Tools) -> None:
    problem = failed(await tools.compile("import no_such_module\n" + KERNEL), Kind.REJECTED, "load")
    assert "No module named 'no_such_module'" in problem.message
    assert problem.likely_fix == "Install it there, or remove the import."


async def test_a_kernel_that_does_not_compile_is_placed_in_its_file(tools: Tools, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("# A comment that moves everything by a line.\n" + replaced(KERNEL, "x * 2", "x * FACTOR"))
    problem = failed(await tools.compile(str(path)), Kind.COMPILE_ERROR, "compile")
    assert "FACTOR is not defined" in problem.message
    assert (problem.file, problem.line) == (str(path), 12)
    assert ">   12 |     tl.store(out_ptr + offsets, x * FACTOR, mask=mask)" in (problem.excerpt or "")


async def test_a_block_that_is_no_power_of_two_is_explained_by_both_tools(tools: Tools) -> None:
    kernel = KERNEL.replace("64", "48")
    assert failed(await tools.compile(kernel), Kind.COMPILE_ERROR, "compile").line == 8
    problem = failed(await tools.check(kernel), Kind.RUNTIME_ERROR, "run")
    assert problem.line == 8
    assert problem.likely_fix == "Use triton.next_power_of_2 for the block and mask the tail."


async def test_more_shared_memory_than_a_block_may_have_is_a_launch_error(tools: Tools) -> None:
    problem = failed(await tools.compile(LARGE_TILES), Kind.LAUNCH_ERROR, "launch")
    assert "out of resource: shared memory, Required: 393216, Hardware limit: 232448" in problem.message
    assert problem.likely_fix == "Lower num_stages or a block size; shared memory grows with both."


# Kernels that are wrong


async def test_a_mask_that_ends_early_is_wrong_at_the_first_element_that_it_leaves_out(tools: Tools) -> None:
    kernel = replaced(KERNEL, "offsets < n", "offsets < n - 1").replace("empty_like(x)", "zeros_like(x)")
    result = await tools.check(kernel)
    problem = failed_comparison(result.problem)
    (case,) = result.cases
    assert (result.kind, case.kind, case.wrong_elements, case.worst_index) == (Kind.WRONG, Kind.WRONG, 1, [999])
    assert case.worst_got == 0.0
    assert case.elements == 1000
    assert "1 of 1,000 elements wrong (0.1 %)" in problem.message
    assert "the worst at [999]" in problem.message


def failed_comparison(problem: Problem | None) -> Problem:
    assert problem is not None
    assert problem.stage == "compare"
    assert problem.likely_cause
    assert problem.likely_fix
    return problem


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("out.half()", "output: expected torch.float32, got torch.float16"),
        ("out[:-1]", "output: expected shape (1000,), got (999,)"),
        ("out.reshape(10, 100)", "output: expected shape (1000,), got (10, 100)"),
        ("None", "output: expected a tensor, got NoneType"),
        ("(out, out)", "output: expected a tensor, got tuple"),
        ("3.0", "output: expected a tensor, got float"),
        ("{'out': out}", "output: expected a tensor, got dict"),
    ],
)
async def test_an_output_of_another_form_is_wrong_in_words(tools: Tools, returned: str, words: str) -> None:
    result = await tools.check(replaced(KERNEL, "return out", f"return {returned}"))
    assert result.kind is Kind.WRONG
    assert words in failed_comparison(result.problem).message
    assert result.cases[0].max_abs_error is None


async def test_a_nan_is_wrong_and_told_as_one(tools: Tools) -> None:
    result = await tools.check(replaced(KERNEL, "x * 2", "x / 0.0 * 0.0"))
    assert result.kind is Kind.WRONG
    assert result.cases[0].worst_got == "nan"
    assert result.cases[0].wrong_elements == 1000


async def test_a_result_that_is_no_data_is_rejected(tools: Tools) -> None:
    problem = failed(await tools.check(replaced(KERNEL, "return out", "return object()")), Kind.REJECTED, "run")
    assert problem.message.startswith("the entry's result is a builtins.object; allowed are tensors")


async def test_a_right_kernel_is_ok_by_both_tools(tools: Tools) -> None:
    compiled, checked = await tools.compile(), await tools.check()
    assert (compiled.kind, checked.kind, checked.device) == (Kind.OK, Kind.OK, "interpreter")
    assert compiled.launches[0].grid == (16, 1, 1)
    assert checked.cases[0].wrong_elements == 0


async def test_a_megabyte_of_print_is_no_fault_and_not_repeated(tools: Tools) -> None:
    kernel = entry("    print('m' * 1_000_000)\n")
    compiled, checked = await tools.compile(kernel), await tools.check(kernel)
    assert (compiled.kind, checked.kind) == (Kind.OK, Kind.OK)
    assert len(compiled.model_dump_json()) < 20_000
    assert len(checked.model_dump_json()) < 20_000


async def test_a_megabyte_of_print_before_an_exception_is_cut(tools: Tools) -> None:
    kernel = entry("    print('m' * 1_000_000)\n    1 / 0\n")
    problem = failed(await tools.compile(kernel), Kind.RUNTIME_ERROR, "capture")
    assert problem.output is not None
    assert 1000 < len(problem.output) < 2000


@pytest.mark.parametrize(
    ("kernel", "kind", "words"),
    [
        (entry("    import sys\n    sys.exit(0)\n"), Kind.RUNTIME_ERROR, "SystemExit: 0"),
        (entry("    raise KeyboardInterrupt\n"), Kind.RUNTIME_ERROR, "KeyboardInterrupt"),
        (entry("    double(x)\n"), Kind.RUNTIME_ERROR, "RecursionError: maximum recursion depth exceeded"),
        (entry("    torch.empty(1 << 46)\n"), Kind.OUT_OF_MEMORY, "can't allocate memory"),
    ],
    ids=["exit", "interrupt", "recursion", "memory"],
)
async def test_an_entry_that_raises_what_ends_programs_is_one_outcome(
    tools: Tools, kernel: str, kind: Kind, words: str
) -> None:
    assert words in failed(await tools.compile(kernel), kind, "capture").message
