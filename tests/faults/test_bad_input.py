"""Whatever kernel and task are, each call ends in one clear outcome, and the server evaluates the next one."""

import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import KERNEL, TASK, Tools
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.results import TEXT_LIMIT, Result, text
from tritonforge.server.services import Services

pytestmark = pytest.mark.anyio

HEAD = KERNEL[: KERNEL.index("def double(x)")]
HANG_S = 3.0
"""Time for what never ends; all else that a worker does in these tests takes far less."""
FORK = """\
import os, signal
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, str(os.getpid()).encode())
    signal.pause()
CHILD = int(os.read(reader, 20))
"""
FORGE = """\
import json, os, stat, struct
FD = next(fd for fd in range(3, 256) if os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode))
def forge(fields, *blobs):
    header = json.dumps({**fields, "blobs": [len(blob) for blob in blobs]}).encode()
    os.write(FD, struct.pack(">4sI", b"TFW1", len(header)) + header + b"".join(blobs))
"""


def failed(result: Result, kind: Kind, stage: str) -> Problem:
    """The problem of a result that must have this kind and stage; what every failing result owes its reader."""
    assert result.kind is kind, result.summary
    problem = result.problem
    assert problem is not None
    assert problem.stage == stage
    assert problem.message
    assert problem.message in result.summary
    assert result.next_step == problem.likely_fix
    assert len(result.summary) < 5000
    assert len(text(result)) <= TEXT_LIMIT + 10
    return problem


def replaced(source: str, old: str, new: str) -> str:
    assert source.count(old) == 1
    return source.replace(old, new)


def entry(body: str) -> str:
    """A kernel file whose entry has this body before its launch."""
    return replaced(KERNEL, "    out = torch.empty_like(x)\n", f"{body}    out = torch.empty_like(x)\n")


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
async def test_a_source_that_cannot_be_read_is_rejected(warm: Tools, kernel: str, task: str, words: str) -> None:
    for result in (await warm.compile(kernel, task), await warm.check(kernel, task)):
        assert words in failed(result, Kind.REJECTED, "source").message


async def test_a_baseline_that_cannot_be_read_is_rejected(warm: Tools) -> None:
    result = await warm.check(baseline="no_such_file.py")
    assert "there is no baseline file" in failed(result, Kind.REJECTED, "source").message


@pytest.mark.parametrize("tool", ["compile", "check"])
async def test_a_syntax_error_of_a_kernel_file_is_placed(warm: Tools, tool: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(replaced(KERNEL, "def double(x):", "def double(x)"))
    problem = failed(await getattr(warm, tool)(str(path)), Kind.REJECTED, "source")
    assert problem.message == f"{path} is not valid Python: expected ':'"
    assert (problem.file, problem.line) == (str(path), 14)
    assert ">   14 | def double(x)" in (problem.excerpt or "")


async def test_a_syntax_error_of_a_task_is_placed(warm: Tools) -> None:
    problem = failed(await warm.compile(task=replaced(TASK, "return x * 2", "return x *")), Kind.REJECTED, "source")
    assert (problem.file, problem.line) == ("<source>", 12)


@pytest.mark.parametrize("expression", ["(" * 50_000 + ")" * 50_000, "-" * 200_000 + "1", "[" + "x." * 100_000 + "y]"])
async def test_an_expression_too_deep_for_the_parser_is_rejected(warm: Tools, expression: str) -> None:
    failed(await warm.compile(f"{KERNEL}\nz = {expression}\n"), Kind.REJECTED, "source")


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
async def test_a_task_that_cannot_be_used_is_rejected(warm: Tools, task: str, stage: str, words: str) -> None:
    problem = failed(await warm.compile(task=task), Kind.REJECTED, stage)
    assert words in problem.message


@pytest.mark.parametrize(
    ("task", "stage", "line"),
    [
        (TASK + "raise KeyError('odd')\n", "task", 13),
        (TASK.replace("return (torch", "raise KeyError('odd')\n    return (torch"), "inputs", 8),
    ],
    ids=["at import", "in make_inputs"],
)
async def test_an_exception_of_a_task_is_placed(warm: Tools, task: str, stage: str, line: int) -> None:
    problem = failed(await warm.compile(task=task), Kind.REJECTED, stage)
    assert (problem.message, problem.file, problem.line) == ("KeyError: 'odd'", "<source>", line)
    assert f"> {line:4d} |" in (problem.excerpt or "")


@pytest.mark.parametrize(
    ("task", "stage", "words"),
    [
        (replaced(TASK, "return x * 2", "raise KeyError('odd')"), "reference", "KeyError: 'odd'"),
        (replaced(TASK, "return x * 2", "return None"), "compare", "the reference returned nothing to compare"),
        (replaced(TASK, "reference", "referenz"), "task", "has no reference and no baseline was given"),
        (replaced(TASK, ', "small": True', ""), "task", "no case is marked as small enough"),
        (TASK + "IN_PLACE = ('out',)\n", "task", "IN_PLACE names ['out']; the arguments are ['x']"),
    ],
)
async def test_a_task_that_nothing_can_be_compared_with_is_rejected(
    warm: Tools, task: str, stage: str, words: str
) -> None:
    kernel = entry("    return None\n") if "return None" in task else KERNEL
    assert words in failed(await warm.check(kernel, task), Kind.REJECTED, stage).message


async def test_an_unknown_case_is_rejected_with_the_choice(warm: Tools) -> None:
    for result in (await warm.compile(cases=["trian"]), await warm.check(cases=["trian"])):
        problem = failed(result, Kind.REJECTED, "task")
        assert problem.likely_fix == "Did you mean 'train'? Its cases are: train."


async def test_an_unknown_target_is_rejected_with_the_choice(warm: Tools) -> None:
    problem = failed(await warm.compile(target="h1000"), Kind.REJECTED, "target")
    assert "h1000" in problem.message
    assert "h100" in problem.message.replace("h1000", "")


async def test_a_task_that_hangs_is_a_timeout(cold: Tools, limited: Callable[..., None]) -> None:
    limited(request_s=HANG_S)
    problem = failed(await cold.compile(task=TASK + "while True:\n    pass\n"), Kind.TIMEOUT, "task")
    assert problem.message == "loading the task took longer than 3 s and was killed"


async def test_a_task_that_crashes_is_a_runtime_error(cold: Tools) -> None:
    task = replaced(TASK, "    return (torch", "    import ctypes\n    ctypes.string_at(0)\n    return (torch")
    problem = failed(await cold.compile(task=task), Kind.RUNTIME_ERROR, "inputs")
    assert "the process ended during make_inputs (killed by SIGSEGV)" in problem.message


# Kernels that cannot be loaded or launched


async def test_an_entry_that_is_missing_is_rejected_with_what_there_is(warm: Tools) -> None:
    problem = failed(await warm.compile(KERNEL.replace("def double(", "def twice(")), Kind.REJECTED, "load")
    assert "<source> has no function 'double' (the task's ENTRY). It defines: double_kernel, twice." in problem.message


@pytest.mark.parametrize("tool", ["compile", "check"])
async def test_an_entry_that_is_a_kernel_is_rejected(warm: Tools, tool: str) -> None:
    task = replaced(TASK, '"double"', '"double_kernel"')
    problem = failed(await getattr(warm, tool)(task=task), Kind.REJECTED, "load")
    assert problem.message.startswith("'double_kernel' is a Triton kernel; ENTRY must name the host function")


async def test_an_entry_that_is_no_function_is_rejected(warm: Tools) -> None:
    problem = failed(await warm.compile(HEAD + "double = 5\n"), Kind.REJECTED, "load")
    assert problem.message == "'double' in <source> is a int, not a function."


async def test_an_entry_that_launches_nothing_is_rejected(warm: Tools) -> None:
    problem = failed(await warm.compile(HEAD + "def double(x):\n    return x * 2\n"), Kind.REJECTED, "capture")
    assert problem.message == "the entry 'double' ran case 'train' and launched no Triton kernel"


async def test_an_exception_at_import_is_placed(warm: Tools) -> None:
    problem = failed(await warm.compile(KERNEL + "\nvalue = {}['odd']\n"), Kind.RUNTIME_ERROR, "load")
    assert (problem.message, problem.line) == ("KeyError: 'odd'", KERNEL.count("\n") + 2)


async def test_an_import_that_the_environment_lacks_is_rejected(warm: Tools) -> None:
    problem = failed(await warm.compile("import no_such_module\n" + KERNEL), Kind.REJECTED, "load")
    assert "No module named 'no_such_module'" in problem.message
    assert problem.likely_fix == "Install it there, or remove the import."


async def test_a_kernel_that_does_not_compile_is_placed_in_its_file(warm: Tools, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("# A comment that moves everything by a line.\n" + replaced(KERNEL, "x * 2", "x * FACTOR"))
    problem = failed(await warm.compile(str(path)), Kind.COMPILE_ERROR, "compile")
    assert "FACTOR is not defined" in problem.message
    assert (problem.file, problem.line) == (str(path), 12)
    assert ">   12 |     tl.store(out_ptr + offsets, x * FACTOR, mask=mask)" in (problem.excerpt or "")


async def test_a_block_that_is_no_power_of_two_is_explained_by_both_tools(warm: Tools) -> None:
    kernel = KERNEL.replace("64", "48")
    assert failed(await warm.compile(kernel), Kind.COMPILE_ERROR, "compile").line == 8
    problem = failed(await warm.check(kernel), Kind.RUNTIME_ERROR, "run")
    assert problem.line == 8
    assert problem.likely_fix == "Use triton.next_power_of_2 for the block and mask the tail."


async def test_more_shared_memory_than_a_block_may_have_is_a_launch_error(warm: Tools) -> None:
    kernel = """\
import torch
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        total += tl.dot(tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :]))
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


def double(x):
    a = torch.empty(128, 4096, dtype=torch.float16)
    b = torch.empty(4096, 256, dtype=torch.float16)
    product[(1,)](a, b, torch.empty(128, 256), 4096, M=128, N=256, BLOCK_K=128, num_stages=4, num_warps=8)
"""
    problem = failed(await warm.compile(kernel), Kind.LAUNCH_ERROR, "launch")
    assert "out of resource: shared memory, Required: 393216, Hardware limit: 232448" in problem.message
    assert problem.likely_fix == "Lower num_stages or a block size; shared memory grows with both."


# Kernels that are wrong


async def test_a_mask_that_ends_early_is_wrong_at_the_first_element_that_it_leaves_out(warm: Tools) -> None:
    kernel = replaced(KERNEL, "offsets < n", "offsets < n - 1").replace("empty_like(x)", "zeros_like(x)")
    result = await warm.check(kernel)
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
async def test_an_output_of_another_form_is_wrong_in_words(warm: Tools, returned: str, words: str) -> None:
    result = await warm.check(replaced(KERNEL, "return out", f"return {returned}"))
    assert result.kind is Kind.WRONG
    assert words in failed_comparison(result.problem).message
    assert result.cases[0].max_abs_error is None


async def test_a_nan_is_wrong_and_told_as_one(warm: Tools) -> None:
    result = await warm.check(replaced(KERNEL, "x * 2", "x / 0.0 * 0.0"))
    assert result.kind is Kind.WRONG
    assert result.cases[0].worst_got == "nan"
    assert result.cases[0].wrong_elements == 1000


async def test_a_result_that_is_no_data_is_rejected(warm: Tools) -> None:
    problem = failed(await warm.check(replaced(KERNEL, "return out", "return object()")), Kind.REJECTED, "run")
    assert problem.message.startswith("the entry's result is a builtins.object; allowed are tensors")


async def test_a_right_kernel_is_ok_by_both_tools(warm: Tools) -> None:
    compiled, checked = await warm.compile(), await warm.check()
    assert (compiled.kind, checked.kind, checked.device) == (Kind.OK, Kind.OK, "interpreter")
    assert compiled.launches[0].grid == (16, 1, 1)
    assert checked.cases[0].wrong_elements == 0


async def test_a_megabyte_of_print_is_no_fault_and_not_repeated(warm: Tools) -> None:
    kernel = entry("    print('m' * 1_000_000)\n")
    compiled, checked = await warm.compile(kernel), await warm.check(kernel)
    assert (compiled.kind, checked.kind) == (Kind.OK, Kind.OK)
    assert len(compiled.model_dump_json()) < 20_000
    assert len(checked.model_dump_json()) < 20_000


async def test_a_megabyte_of_print_before_an_exception_is_cut(warm: Tools) -> None:
    kernel = entry("    print('m' * 1_000_000)\n    1 / 0\n")
    problem = failed(await warm.compile(kernel), Kind.RUNTIME_ERROR, "capture")
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
    warm: Tools, kernel: str, kind: Kind, words: str
) -> None:
    assert words in failed(await warm.compile(kernel), kind, "capture").message


# Kernels that do harm: from here on, each has a worker of its own to ruin.


@pytest.mark.parametrize(
    ("kernel", "stage", "doing"),
    [
        (KERNEL + "while True:\n    pass\n", "load", "loading the kernel file"),
        (entry("    while True:\n        pass\n"), "capture", "running and compiling the entry"),
    ],
    ids=["import", "entry"],
)
async def test_a_kernel_file_that_hangs_is_a_timeout(
    tools: Tools, limited: Callable[..., None], kernel: str, stage: str, doing: str
) -> None:
    limited(request_s=HANG_S)
    problem = failed(await tools.compile(kernel), Kind.TIMEOUT, stage)
    assert problem.message == f"{doing} took longer than 3 s and was killed"
    assert problem.likely_cause
    assert problem.likely_fix


async def test_a_kernel_that_hangs_in_the_interpreter_is_a_timeout(
    tools: Tools, limited: Callable[..., None], scratch_folders: Path
) -> None:
    limited(request_s=HANG_S)
    kernel = replaced(KERNEL, "    x = tl.load(x_ptr", "    while n > 0:\n        n += 1\n    x = tl.load(x_ptr")
    problem = failed(await tools.check(kernel), Kind.TIMEOUT, "run")
    assert "small=True" in (problem.likely_fix or "")
    assert os.listdir(scratch_folders) == []


@pytest.mark.parametrize(
    ("kernel", "kind", "stage", "words"),
    [
        (entry("    import ctypes\n    ctypes.string_at(0)\n"), Kind.RUNTIME_ERROR, "capture", "killed by SIGSEGV"),
        (entry("    import os\n    os._exit(0)\n"), Kind.RUNTIME_ERROR, "capture", "(exit code 0)"),
        (entry("    import os\n    os.closerange(0, 4096)\n"), Kind.RUNTIME_ERROR, "capture", "(exit code 1"),
        (entry("    import os\n    os.killpg(0, 9)\n"), Kind.OUT_OF_MEMORY, "capture", "was killed (SIGKILL)"),
    ],
    ids=["segfault", "_exit", "descriptors", "SIGKILL"],
)
async def test_an_entry_that_ends_its_process_is_one_outcome(
    tools: Tools, kernel: str, kind: Kind, stage: str, words: str, scratch_folders: Path
) -> None:
    assert words in failed(await tools.compile(kernel), kind, stage).message
    assert os.listdir(scratch_folders) == []


async def test_a_candidate_that_deletes_its_folder_is_one_outcome(tools: Tools, scratch_folders: Path) -> None:
    kernel = entry("    import os, shutil\n    shutil.rmtree(os.getcwd())\n")
    result = await tools.compile(kernel)
    assert result.kind in {Kind.OK, Kind.RUNTIME_ERROR}
    assert os.listdir(scratch_folders) == []


async def test_an_access_out_of_bounds_in_the_interpreter_is_explained(tools: Tools) -> None:
    kernel = replaced(KERNEL, "tl.load(x_ptr + offsets, mask=mask)", "tl.load(x_ptr + offsets + (1 << 40))")
    problem = failed(await tools.check(kernel), Kind.RUNTIME_ERROR, "run")
    assert problem.message == "the process ended during running the entry (killed by SIGSEGV)"
    assert "masks" in (problem.likely_fix or "")


async def test_threads_that_never_end_hold_nothing_up(tools: Tools) -> None:
    kernel = entry("    import threading\n    threading.Thread(target=threading.Event().wait).start()\n")
    assert (await tools.compile(kernel)).kind is Kind.OK


async def test_a_forked_child_does_not_outlive_its_evaluation(tools: Tools, tmp_path: Path) -> None:
    told = tmp_path / "session"
    kernel = FORK + f"open({str(told)!r}, 'w').write(f'{{os.getpid()}} {{CHILD}}')\n" + KERNEL
    assert (await tools.compile(kernel)).kind is Kind.OK
    session, child = map(int, told.read_text().split())
    assert session != child
    assert running(session) == []


def running(session: int) -> list[int]:
    """Processes of a session that have not ended (a zombie has), after each has had its time to die."""
    left: list[int] = []
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        try:
            state, _, _, its_session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
            if int(its_session) != session or state in {"Z", "X"}:
                continue
            descriptor = os.pidfd_open(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        with open(descriptor, "rb") as ended:
            if not select.select([ended], [], [], 20)[0]:
                left.append(pid)
    return left


FORGED_LAUNCH = {
    "kernel": "k", "symbol": "k", "grid": [2**31 - 1] * 3, "count": 1, "tuning": False, "num_warps": 4, "num_stages": 3,
    "num_ctas": 1, "shared_bytes": 0, "constexprs": {}, "signature": {}, "divisible_by_16": [], "line": 1,
    "ptxas_log": "ptxas info : Used 9999999999 registers", "assembly": {"ttgir": 0, "ptx": 0},
}  # fmt: skip


@pytest.mark.parametrize(
    ("statement", "kinds"),
    [
        ("os.write(FD, b'\\x00' * 64)", {Kind.CHEATING}),
        (f"forge({{'ok': True, 'launches': [{FORGED_LAUNCH}]}}, bytes(range(256)))", {Kind.OK, Kind.CHEATING}),
    ],
    ids=["garbage", "a launch"],
)
async def test_a_forged_capture_is_one_outcome(tools: Tools, statement: str, kinds: set[Kind]) -> None:
    result = await tools.compile(FORGE + entry(f"    {statement}\n"))
    assert result.kind in kinds


DEEP = "t = {'value': 1}\n    for _ in range(450): t = {'list': [t]}\n    "


@pytest.mark.parametrize(
    ("statement", "kinds"),
    [
        ("forge({'ok': True, 'tree': {'value': float('nan')}})", {Kind.CHEATING}),
        ("forge({'ok': True, 'tree': {'tensor': {}, 'blob': 9}})", {Kind.RUNTIME_ERROR}),
        (DEEP + "forge({'ok': True, 'tree': t})", {Kind.RUNTIME_ERROR, Kind.WRONG}),
    ],
    ids=["nan", "no tensor", "deep"],
)
async def test_forged_outputs_are_one_outcome_and_never_ok(tools: Tools, statement: str, kinds: set[Kind]) -> None:
    result = await tools.check(FORGE + entry(f"    {statement}\n"))
    assert result.kind in kinds
    assert result.problem is not None


async def test_the_same_server_evaluates_a_good_kernel_after_all_of_these(tools: Tools, cold: Tools) -> None:
    assert (await cold.compile()).kind is Kind.OK
    assert (await cold.check()).kind is Kind.OK


# Interpreters that workers cannot run in


@pytest.fixture(scope="module")
def bare_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that nothing is installed in."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


def pretend(python: Path, package: str, version: str) -> None:
    """Let a package seem to be installed: its metadata alone."""
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    for folder in site.glob(f"{package}-*.dist-info"):
        (folder / "METADATA").unlink()
        folder.rmdir()
    metadata = site / f"{package}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")


def interpreted_by(services: Services, python: str | Path) -> Tools:
    return Tools(Services(services.settings.model_copy(update={"python": str(python)})))


@pytest.mark.parametrize("python", ["/no/such/python", "/etc/passwd", "/bin/true", "/bin/cat"])
async def test_what_is_no_interpreter_is_unavailable_with_a_remedy(services: Services, python: str) -> None:
    tools = interpreted_by(services, python)
    for result in (await tools.compile(), await tools.check()):
        problem = failed(result, Kind.UNAVAILABLE, "environment")
        assert "--python" in (problem.likely_fix or "")


async def test_an_interpreter_without_torch_is_unavailable(services: Services, bare_environment: Path) -> None:
    tools = interpreted_by(services, bare_environment)
    for result in (await tools.compile(), await tools.check()):
        problem = failed(result, Kind.UNAVAILABLE, "environment")
        assert problem.message == f"torch is not installed for {bare_environment}"
        assert "pip install 'torch>=2.8'" in (problem.likely_fix or "")


async def test_an_interpreter_with_an_old_torch_is_unavailable(services: Services, bare_environment: Path) -> None:
    pretend(bare_environment, "torch", "2.7.1+cu128")
    problem = failed(await interpreted_by(services, bare_environment).compile(), Kind.UNAVAILABLE, "environment")
    assert problem.message == "torch 2.7.1+cu128 is too old; 2.8 or newer is needed"
    assert f"Upgrade it for {bare_environment}" in (problem.likely_fix or "")


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("3.3.1", "triton 3.3.1 is too old; 3.4 or newer is needed"),
        ("3.10.0", "import torch 2.13.0 failed: ModuleNotFoundError"),
    ],
)
async def test_an_interpreter_with_an_old_or_broken_triton_is_unavailable(
    tools: Tools, bare_environment: Path, version: str, words: str
) -> None:
    # The task's worker is the shared one, which is sound: it is the kernel's that can't start.
    pretend(bare_environment, "torch", "2.13.0")
    pretend(bare_environment, "triton", version)
    other = interpreted_by(tools.services, bare_environment)
    for result in (await other.compile(), await other.check()):
        problem = failed(result, Kind.UNAVAILABLE, "environment")
        assert words in problem.message
        assert problem.likely_fix
