"""What a worker's exception, death or silence means."""

import re
import signal
from typing import Any

import pytest

from tritonforge.sandbox.advice import ADVICE
from tritonforge.sandbox.isolation import WORKER_FOLDER
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.remediation import (
    OUTPUT_SHOWN,
    explain_death,
    explain_failure,
    explain_memory,
    explain_timeout,
)

FAILURE: dict[str, Any] = {
    "stage": "run", "kind": None, "exception": "ValueError", "bases": ["ValueError", "Exception", "BaseException"],
    "message": "odd", "file": "kernel.py", "line": 7, "excerpt": ">    7 | raise ValueError('odd')",
}  # fmt: skip
OPERATIONS = [
    "start", "begin", "probe_device", "load_task", "shrink", "audit", "impostors", "make_inputs", "make_and_expect",
    "work", "expect_exact", "expect_from", "upstream", "judge", "repeat", "load_kernel", "set_inputs", "capture",
    "call", "run_once", "prepare", "first_call", "lay_out", "release", "visit", "outputs", "call_times",
    "graph_floor", "record", "tuned", "load_plan", "make_alternatives", "set_alternatives",
    "keep_contents", "vary", "vary_from", "judge_outputs", "time_reference", "ceilings",
    "profile", "profile_file", "count", "probe_profile", "read_report", "load_reader", "warm_up", "run_file",
    "captured", "explain",
]  # fmt: skip


def test_every_request_that_a_worker_answers_is_among_the_operations() -> None:
    answered = {
        name
        for path in WORKER_FOLDER.glob("*.py")
        for name in re.findall(r"^    def do_(\w+)\(", path.read_text(), re.M)
    }
    assert len(answered) > 30
    assert answered <= set(OPERATIONS)


def explained(**changed: Any) -> tuple[Kind, Problem]:
    return explain_failure({**FAILURE, **changed}, "")


@pytest.mark.parametrize(
    ("changed", "kind", "stage"),
    [
        ({}, Kind.RUNTIME_ERROR, "run"),
        ({"kind": "rejected", "stage": "load"}, Kind.REJECTED, "load"),
        ({"kind": "unsupported"}, Kind.UNSUPPORTED, "run"),
        ({"bases": ["CompilationError"], "stage": "capture"}, Kind.COMPILE_ERROR, "compile"),
        ({"bases": ["ValueError", "Exception", "CompilationError"]}, Kind.COMPILE_ERROR, "compile"),
        ({"bases": ["PTXASError"]}, Kind.COMPILE_ERROR, "compile"),
        ({"bases": ["CompileTimeAssertionFailure"]}, Kind.COMPILE_ERROR, "compile"),
        ({"bases": ["RuntimeError"], "message": "PassManager::run failed"}, Kind.COMPILE_ERROR, "compile"),
        ({"bases": ["OutOfResources"], "stage": "capture"}, Kind.LAUNCH_ERROR, "launch"),
        ({"bases": ["OutOfMemoryError", "RuntimeError"]}, Kind.OUT_OF_MEMORY, "run"),
        ({"bases": ["MemoryError"], "stage": "inputs"}, Kind.OUT_OF_MEMORY, "inputs"),
        ({"message": "[enforce fail] DefaultCPUAllocator: can't allocate memory"}, Kind.OUT_OF_MEMORY, "run"),
        ({"message": "CUDA error: Out of Memory"}, Kind.OUT_OF_MEMORY, "run"),
        ({"message": "cuMemCreate failed: CUDA_ERROR_OUT_OF_MEMORY", "stage": "inputs"}, Kind.OUT_OF_MEMORY, "inputs"),
        (
            {"message": "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`", "stage": "reference"},
            Kind.OUT_OF_MEMORY,
            "reference",
        ),
        ({"stage": "task"}, Kind.REJECTED, "task"),
        ({"stage": "inputs"}, Kind.REJECTED, "inputs"),
        ({"stage": "reference"}, Kind.REJECTED, "reference"),
        ({"stage": "load", "bases": ["ModuleNotFoundError", "ImportError"]}, Kind.REJECTED, "load"),
        ({"stage": "load"}, Kind.RUNTIME_ERROR, "load"),
        ({"stage": "capture", "message": "CUDA error: no device"}, Kind.UNSUPPORTED, "capture"),
        ({"stage": "run", "message": "CUDA error: illegal memory access"}, Kind.RUNTIME_ERROR, "run"),
        ({"stage": "run", "message": "Torch not compiled with CUDA enabled"}, Kind.UNSUPPORTED, "run"),
    ],
)
def test_an_exception_has_the_kind_and_stage_that_it_means(changed: dict[str, Any], kind: Kind, stage: str) -> None:
    found, problem = explained(**changed)
    assert (found, problem.stage) == (kind, stage)
    assert (problem.file, problem.line, problem.excerpt) == ("kernel.py", 7, FAILURE["excerpt"])


@pytest.mark.parametrize("kind", ["ok", "running", "cancelled", "wrong", "timeout", "unavailable", "cheating", "odd"])
def test_a_worker_cannot_choose_an_outcome_for_itself(kind: str) -> None:
    assert explained(kind=kind)[0] is Kind.CHEATING


@pytest.mark.parametrize(
    "fields",
    [
        None, [], "failure", {}, {**FAILURE, "extra": 1}, {**FAILURE, "message": None}, {**FAILURE, "bases": "x"},
        {**FAILURE, "line": "seven"}, {**FAILURE, "message": "\ud800"}, {**FAILURE, "message": "x" * 1_000_000},
        {**FAILURE, "excerpt": "x" * 1_000_000}, {name: FAILURE[name] for name in FAILURE if name != "stage"},
    ],
)  # fmt: skip
def test_a_malformed_report_is_cheating_and_not_repeated(fields: Any) -> None:
    kind, problem = explain_failure(fields, "")
    assert kind is Kind.CHEATING
    assert problem.message.startswith("the worker's failure report is malformed")
    assert len(problem.message) < 200


@pytest.mark.parametrize(
    ("message", "excerpt", "fix"),
    [
        ("k.py is not valid Python: invalid syntax", ">    1 | ```python\n     2 | x = 1", "no prose or fences"),
        ("k.py is not valid Python: invalid syntax", ">    1 | def f(:", "Mend the syntax there"),
        ("k.py calls sys.exit(0) while it is imported", None, "Take the exit out"),
        ("k.py has no function 'f' (the task's ENTRY). It defines: g.", None, "Define the host function"),
    ],
)
def test_what_a_file_lacks_is_told_with_what_to_do(message: str, excerpt: str | None, fix: str) -> None:
    kind, problem = explained(kind="rejected", stage="load", message=message, excerpt=excerpt)
    assert kind is Kind.REJECTED
    assert fix in (problem.likely_fix or "")


def test_the_exceptions_name_stands_before_its_message() -> None:
    assert explained(exception="some.module.OddError")[1].message == "OddError: odd"


def test_a_refusal_and_a_compile_error_speak_for_themselves() -> None:
    assert explained(kind="rejected", exception="x.Refused")[1].message == "odd"
    assert explained(bases=["CompilationError"], exception="triton.CompilationError")[1].message == "odd"


@pytest.mark.parametrize(("bases", "told"), [(["NameError", "CompilationError"], True), (["NameError"], False)])
def test_an_undefined_name_is_explained_as_triton_does_only_inside_a_kernel(bases: list[str], told: bool) -> None:
    fix = explained(message="UNKNOWN is not defined", bases=bases)[1].likely_fix
    assert ("tl.constexpr" in (fix or "")) is told


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        ("out of resource: shared memory, Required: 393216, Hardware limit: 232448", "Lower num_stages"),
        ("out of resource: threads, Required: 2048, Hardware limit: 1024", "Lower num_warps"),
        ("CUDA error: an illegal memory access was encountered", "Check offsets and masks"),
        ("CUDA error: misaligned address", "multiple_of"),
        ("CUDA error: device-side assert triggered", "assertion's text"),
        ("AssertionError: num_warps must be a power of 2", "num_warps=4"),
        ("arange's range must be a power of 2", "next_power_of_2"),
        ("Shape element 0 must be a power of 2", "next_power_of_2"),
        ("Cannot make_shape_compatible: incompatible dimensions at index 0: 64 and 32", "[:, None]"),
        ("Both operands must be same dtype. Got fp16 and fp32", ".to("),
        ("Cannot access global variable SIZE from within @jit'ed function.", "tl.constexpr"),
        ("Cannot call @triton.jit'd outside of the scope of a kernel", "kernel[grid]"),
        ("dynamic_func() missing 1 required positional argument: 'n'", "signature"),
        ("Input shapes should have M >= 1, N >= 1 and K >= 16", "Raise the block size"),
        ("No module named 'flash_attn'", "Install it"),
        ("PassManager::run failed", "first error"),
    ],
)
def test_known_messages_come_with_a_cause_and_a_fix(message: str, fix: str) -> None:
    problem = explained(message=message)[1]
    assert problem.likely_cause
    assert fix in (problem.likely_fix or "")


def test_no_advice_is_shadowed_by_an_earlier_one() -> None:
    assert len({advice.pattern for advice in ADVICE}) == len(ADVICE)
    assert len({advice.cause for advice in ADVICE}) == len(ADVICE)


@pytest.mark.parametrize(
    ("changed", "fix"),
    [
        ({"stage": "inputs"}, "make_inputs"),
        ({"stage": "reference"}, "reference"),
        ({"bases": ["MemoryError"]}, "smaller case"),
        ({"kind": "unsupported"}, "machine with a GPU"),
    ],
)
def test_other_failures_come_with_the_fix_of_their_stage_or_kind(changed: dict[str, Any], fix: str) -> None:
    assert fix in (explained(**changed)[1].likely_fix or "")


def test_only_the_end_of_long_output_is_shown() -> None:
    problem = explain_failure(FAILURE, "first\n" + "x" * 10_000 + "\nlast")[1]
    assert problem.output is not None
    assert problem.output.endswith("\nlast")
    assert "first" not in problem.output
    assert len(problem.output) <= OUTPUT_SHOWN + 5


def test_what_the_compiler_calls_an_error_is_shown_however_much_it_prints_behind_it() -> None:
    said = "k.py:9:4: error: 'ttng.tensormap_create' op can't be predicated"
    problem = explain_failure(FAILURE, f"first\n{said}\n{said}\n" + "pass,\n" * 5000 + "last")[1]
    assert problem.output is not None
    assert problem.output.startswith(said + "\n[...]")
    assert problem.output.endswith("last")
    assert len(problem.output) <= OUTPUT_SHOWN + 6


def test_no_output_is_not_an_empty_one() -> None:
    assert explain_failure(FAILURE, " \n ")[1].output is None


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_that_takes_too_long_is_named_with_a_fix(operation: str) -> None:
    problem = explain_timeout(operation, 2.5, "last words")
    assert "took longer than 2.5 s and was killed" in problem.message
    assert problem.likely_fix
    assert problem.output == "last words"


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("returncode", [None, 0, 1, -9, -11, -6, -64, 139])
def test_every_death_in_every_operation_is_explained(operation: str, returncode: int | None) -> None:
    kind, problem = explain_death(operation, returncode, "")
    assert kind in {Kind.UNAVAILABLE, Kind.OUT_OF_MEMORY, Kind.RUNTIME_ERROR}
    assert (kind is Kind.UNAVAILABLE) == (operation == "start")
    assert problem.message


@pytest.mark.parametrize(
    ("returncode", "kind", "words"),
    [
        (-signal.SIGSEGV, Kind.RUNTIME_ERROR, "killed by SIGSEGV"),
        (-signal.SIGABRT, Kind.RUNTIME_ERROR, "killed by SIGABRT"),
        (-signal.SIGKILL, Kind.OUT_OF_MEMORY, "killed (SIGKILL)"),
        (-signal.SIGXCPU, Kind.TIMEOUT, "more CPU time than one process may have"),
        (0, Kind.RUNTIME_ERROR, "exit code 0"),
        (3, Kind.RUNTIME_ERROR, "exit code 3"),
        (-64, Kind.RUNTIME_ERROR, "SIGRTMAX"),
        (-100, Kind.RUNTIME_ERROR, "killed by signal 100"),
        (None, Kind.RUNTIME_ERROR, "still running"),
    ],
)
def test_a_death_says_how_the_process_ended(returncode: int | None, kind: Kind, words: str) -> None:
    found, problem = explain_death("call", returncode, "")
    assert found is kind
    assert problem.stage == "run"
    assert words in problem.message


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_that_takes_too_much_memory_is_named_with_the_figure_and_a_fix(operation: str) -> None:
    problem = explain_memory(operation, "5 bytes of host memory, of 4 that are allowed", "last words")
    assert problem.message.endswith(" was killed: it took 5 bytes of host memory, of 4 that are allowed")
    assert "allocate less" in (problem.likely_fix or "")
    assert problem.output == "last words"


def test_memory_is_told_with_its_stage() -> None:
    assert explain_memory("call", "too much", "").stage == "run"
    assert (
        explain_memory("expect_exact", "too much", "").message
        == "the reference in float64 was killed: it took too much"
    )


@pytest.mark.parametrize(
    ("oom_killed", "kind", "words"),
    [
        (True, Kind.OUT_OF_MEMORY, "running the entry was killed (SIGKILL), most likely for using too much memory"),
        (None, Kind.OUT_OF_MEMORY, "running the entry was killed (SIGKILL), most likely for using too much memory"),
        (False, Kind.RUNTIME_ERROR, "the process ended during running the entry (killed by SIGKILL)"),
    ],
)
def test_a_kill_is_put_down_to_memory_unless_the_kernel_says_otherwise(
    oom_killed: bool | None, kind: Kind, words: str
) -> None:
    found, problem = explain_death("call", -signal.SIGKILL, "last words", oom_killed=oom_killed)
    assert (found, problem.stage, problem.message, problem.output) == (kind, "run", words, "last words")
    assert "itself" in (problem.likely_cause or "")
    assert problem.likely_fix


@pytest.mark.parametrize("returncode", [-signal.SIGSEGV, 0, 3, None])
def test_memory_that_ran_out_explains_no_other_death(returncode: int | None) -> None:
    for oom_killed in (True, False):
        assert explain_death("call", returncode, "", oom_killed=oom_killed)[0] is Kind.RUNTIME_ERROR


def test_a_start_that_was_killed_stays_unavailable() -> None:
    assert explain_death("start", -signal.SIGKILL, "", oom_killed=False)[0] is Kind.UNAVAILABLE


@pytest.mark.parametrize("returncode", [-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, 139])
def test_a_crash_points_at_masks(returncode: int) -> None:
    assert "masks" in (explain_death("call", returncode, "")[1].likely_fix or "")


@pytest.mark.parametrize("returncode", [0, 1, 3])
def test_an_exit_points_at_whoever_called_it(returncode: int) -> None:
    assert "os._exit" in (explain_death("call", returncode, "")[1].likely_cause or "")


@pytest.mark.parametrize(
    "output",
    [
        "python: Layout.cpp:12: Assertion `a == b' failed.",
        "LLVM ERROR: Cannot select: intrinsic",
        "UNREACHABLE executed at Lower.cpp:9!",
    ],
)
def test_an_abort_of_the_compiler_is_a_compile_error(output: str) -> None:
    kind, problem = explain_death("capture", -signal.SIGABRT, f"noise\n{output}\nmore")
    assert (kind, problem.stage) == (Kind.COMPILE_ERROR, "compile")
    assert output in problem.message
    assert explain_death("load_kernel", -signal.SIGABRT, output)[0] is Kind.RUNTIME_ERROR
