"""What a failure means: from a worker's exception, death or silence to an outcome kind and remediation data.

Pure functions over text and numbers; nothing here trusts what a worker says beyond its being text.
"""

import re
import signal
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from .advice import ADVICE
from .outcome import Kind, Problem
from .wire import Wire

_NEEDS_GPU = (
    r"without ATen_cuda library|not compiled with CUDA|NVTX functions not installed|not linked with support for cuda"
    r"|'InterpreterBuilder' object has no attribute"
)
"""How a CPU build of torch, or Triton's interpreter, says that only a GPU could do this; a worker on one never does."""
OUTPUT_SHOWN = 1500
ERROR_SHOWN = 240
ERRORS_SHOWN = 3
_ERROR = re.compile(r"\berror:")
"""Characters of captured output in a problem."""


class Failure(Wire):
    """An exception in a worker, as `worker/failures.py` describes it."""

    stage: str = Field(max_length=100)
    kind: Literal[Kind.REJECTED, Kind.UNSUPPORTED, Kind.CHEATING] | None
    """What the worker itself refused; a candidate in it must not be able to say ``ok``."""
    exception: str = Field(max_length=1000)
    bases: list[str]
    message: str = Field(max_length=4000)
    file: str | None
    line: int | None
    excerpt: str | None = Field(max_length=4000)


def explain_failure(fields: Any, output: str) -> tuple[Kind, Problem]:
    """Kind and problem of a failure frame."""
    try:
        failure = Failure.model_validate(fields)
    except ValidationError as error:
        return Kind.CHEATING, Problem(
            stage="worker", message=f"the worker's failure report is malformed: {error.error_count()} errors"
        )
    kind, stage = _classify(failure)
    cause, fix = _advise(kind, failure)
    message = failure.message
    if failure.kind is None and kind is not Kind.COMPILE_ERROR and failure.exception not in {"AssertionError"}:
        message = f"{failure.exception.rpartition('.')[2]}: {message}"
    return kind, Problem(
        stage=stage,
        message=message,
        file=failure.file,
        line=failure.line,
        excerpt=failure.excerpt,
        likely_cause=cause,
        likely_fix=fix,
        output=_shown(output),
    )


def explain_timeout(operation: str, timeout_s: float, output: str) -> Problem:
    """The worker did not answer in time and was killed."""
    stage, doing = _OPERATIONS[operation]
    return Problem(
        stage=stage,
        message=f"{doing} took longer than {timeout_s:g} s and was killed",
        likely_cause=_TIMEOUT_CAUSES.get(operation),
        likely_fix=_TIMEOUT_FIXES.get(operation, "Look for an endless loop; try the smallest case first."),
        output=_shown(output),
    )


def explain_memory(operation: str, excess: str, output: str) -> Problem:
    """The worker was killed for what it took."""
    stage, doing = _OPERATIONS[operation]
    return Problem(
        stage=stage,
        message=f"{doing} was killed: it took {excess}",
        likely_fix="Use a smaller case, or allocate less; intermediate results count too.",
        output=_shown(output),
    )


def explain_death(
    operation: str, returncode: int | None, output: str, *, oom_killed: bool | None = None
) -> tuple[Kind, Problem]:
    """The worker ended without an answer.

    Args:
        operation: what it was asked for.
        returncode: negative is the signal that ended it; None: it had not ended yet.
        output: what it had printed.
        oom_killed: whether the kernel ran out of memory meanwhile and killed for it; None where that isn't known.
    """
    stage, doing = _OPERATIONS[operation]
    aborted = re.search(r"^.*(Assertion `.*' failed|LLVM ERROR:|UNREACHABLE executed).*$", output, re.M)
    if aborted and operation in {"capture", "run_file", "explain", "call", "first_call"}:
        return Kind.COMPILE_ERROR, Problem(
            stage="compile",
            message=f"Triton's compiler aborted: {aborted.group(0).strip()[:500]}",
            likely_cause="A construct that this version of Triton can't compile for the target.",
            likely_fix="Simplify the construct that the message names, or try another Triton version.",
            output=_shown(output),
        )
    if operation == "start":
        return Kind.UNAVAILABLE, Problem(
            stage="environment",
            message=f"the worker ended before it was ready ({_ending(returncode)})",
            likely_fix="Run `tritonforge-mcp doctor`; check that --python names a working interpreter.",
            output=_shown(output),
        )
    number = -returncode if returncode is not None and returncode < 0 else None
    if number == signal.SIGXCPU:
        return Kind.TIMEOUT, Problem(
            stage=stage,
            message=f"{doing} took more CPU time than one process may have, and was killed (SIGXCPU)",
            likely_cause=_TIMEOUT_CAUSES.get(operation),
            likely_fix=_TIMEOUT_FIXES.get(operation, "Look for an endless loop; try the smallest case first."),
            output=_shown(output),
        )
    if number == signal.SIGKILL and oom_killed is False:
        return Kind.RUNTIME_ERROR, Problem(
            stage=stage,
            message=f"the process ended during {doing} (killed by SIGKILL)",
            likely_cause="The code killed itself, or something outside did, such as its limit of CPU time or a daemon "
            "that watches memory; the kernel's own out-of-memory killer has ended nothing meanwhile.",
            likely_fix="Remove what sends signals from the code; else try once more.",
            output=_shown(output),
        )
    if number == signal.SIGKILL:
        return Kind.OUT_OF_MEMORY, Problem(
            stage=stage,
            message=f"{doing} was killed (SIGKILL), most likely for using too much memory",
            likely_cause="The system's out-of-memory killer ends a process this way; the code can also do it itself.",
            likely_fix="Use a smaller case, or allocate less on the host.",
            output=_shown(output),
        )
    cause, fix = None, None
    if number in {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT} or (returncode or 0) in {134, 135, 139}:
        cause = (
            "An access outside a tensor's memory: a load or store whose mask does not cover every lane beyond the end."
        )
        fix = "Check offsets and masks against the tensor's size, the last block first."
    elif returncode is not None and returncode >= 0:
        cause = "The code ended the process itself, for example by os._exit or an exit in a thread."
        fix = "Return from the entry instead of ending the process."
    return Kind.RUNTIME_ERROR, Problem(
        stage=stage,
        message=f"the process ended during {doing} ({_ending(returncode)})",
        likely_cause=cause,
        likely_fix=fix,
        output=_shown(output),
    )


def _classify(failure: Failure) -> tuple[Kind, str]:
    if failure.kind is not None:
        return failure.kind, failure.stage
    bases, text = set(failure.bases), failure.message
    if bases & {"CompilationError", "PTXASError", "CompileTimeAssertionFailure"} or "PassManager::run failed" in text:
        return Kind.COMPILE_ERROR, "compile"
    if bases & {"OutOfResources", "InvalidGrid"}:
        return Kind.LAUNCH_ERROR, "launch"
    if (
        bases & {"OutOfMemoryError", "MemoryError"}
        or "can't allocate memory" in text
        # The driver and its libraries say so by the names of their codes.
        or re.search(r"out[ _]of[ _]memory|_STATUS_ALLOC_FAILED", text, re.IGNORECASE)
    ):
        return Kind.OUT_OF_MEMORY, failure.stage
    if failure.stage in {"task", "inputs", "reference"}:
        return Kind.REJECTED, failure.stage
    if failure.stage == "load" and bases & {"ImportError"}:
        return Kind.REJECTED, failure.stage
    if (failure.stage == "capture" and re.search(r"CUDA|cuda|not implemented for|NVIDIA driver", text)) or re.search(
        _NEEDS_GPU, text
    ):
        return Kind.UNSUPPORTED, failure.stage
    return Kind.RUNTIME_ERROR, failure.stage


def _advise(kind: Kind, failure: Failure) -> tuple[str | None, str | None]:
    in_kernel = kind is Kind.COMPILE_ERROR or "InterpreterError" in failure.bases
    of_the_task = failure.stage in {"task", "inputs", "reference"}
    if kind is Kind.REJECTED and (told := _of_refused(failure)) is not None:
        return told
    for advice in ADVICE:
        applies = in_kernel or not (advice.in_kernel or of_the_task)
        if applies and re.search(advice.pattern, failure.message):
            return advice.cause, advice.fix
    if kind is Kind.OUT_OF_MEMORY:
        return None, "Use a smaller case, or allocate less."
    if failure.stage == "inputs":
        return None, "Mend make_inputs in the task file; it is called with the case's parameters and device."
    if failure.stage == "reference":
        return None, "Mend reference in the task file; it is called with what make_inputs returns."
    if kind is Kind.UNSUPPORTED:
        return None, "Run it on a machine with a GPU, or write the entry without what is named."
    return None, None


def _of_refused(failure: Failure) -> tuple[str | None, str] | None:
    """Cause and fix for what a file lacks before anything of it runs."""
    message = failure.message
    if "is not valid Python" in message:
        if "```" in (failure.excerpt or ""):
            return "Markdown stands around the code.", "Send only Python, no prose or fences."
        return None, "Mend the syntax there. The whole text has to be Python: no prose, nothing left out."
    if "calls sys.exit(" in message:
        return None, "Take the exit out; what only a script does belongs under if __name__ == '__main__'."
    if "(the task's ENTRY)" in message:
        return None, "Define the host function under that name, with the baseline's signature."
    return None


def _ending(returncode: int | None) -> str:
    if returncode is None:
        return "still running, its socket closed"
    if returncode < 0:
        try:
            return f"killed by {signal.Signals(-returncode).name}"
        except ValueError:
            return f"killed by signal {-returncode}"
    return f"exit code {returncode}"


def _shown(output: str) -> str | None:
    # A worker prints its own crash trace last; what the code printed stands before it.
    output = output.strip()
    if not output:
        return None
    if len(output) <= OUTPUT_SHOWN:
        return output
    # The compiler names what is wrong before it lists its passes, which takes pages.
    errors = [line.strip()[:ERROR_SHOWN] for line in output[:-OUTPUT_SHOWN].splitlines() if _ERROR.search(line[:1000])]
    said = "\n".join(dict.fromkeys(errors[:ERRORS_SHOWN]))
    return f"{said}\n[...]{output[len(said) - OUTPUT_SHOWN :]}" if said else "[...]" + output[-OUTPUT_SHOWN:]


class Operation(NamedTuple):
    """A request to a worker in words: the stage that it belongs to, and what is being done."""

    stage: str
    doing: str


_OPERATIONS = {
    "start": Operation("environment", "starting the worker"),
    "begin": Operation("environment", "taking the job"),
    "probe_device": Operation("environment", "the check of the device"),
    "load_task": Operation("task", "loading the task"),
    "shrink": Operation("inputs", "making the case smaller"),
    "make_inputs": Operation("inputs", "make_inputs"),
    "make_and_expect": Operation("reference", "make_inputs or the reference"),
    "audit": Operation("reference", "the audit of the task"),
    "impostors": Operation("reference", "the audit of the task"),
    "work": Operation("task", "work()"),
    "expect_exact": Operation("reference", "the reference in float64"),
    "upstream": Operation("reference", "drawing the outputs' gradients"),
    "expect_from": Operation("compare", "taking the baseline's outputs"),
    "judge": Operation("compare", "the comparison"),
    "repeat": Operation("compare", "the comparison of two calls"),
    "load_kernel": Operation("load", "loading the kernel file"),
    "set_inputs": Operation("inputs", "taking the inputs"),
    "capture": Operation("capture", "running and compiling the entry"),
    "run_file": Operation("capture", "running the kernel file and compiling its launches"),
    "captured": Operation("capture", "handing over the launches"),
    "explain": Operation("capture", "explaining what was compiled"),
    "call": Operation("run", "running the entry"),
    "run_once": Operation("sanitize", "the call under compute-sanitizer"),
    "prepare": Operation("benchmark", "preparing the benchmark"),
    "first_call": Operation("run", "the first call of the entry"),
    "release": Operation("benchmark", "giving memory back"),
    "lay_out": Operation("benchmark", "making room for timed calls"),
    "visit": Operation("benchmark", "timed calls"),
    "outputs": Operation("benchmark", "handing over a timed call's results"),
    "call_times": Operation("benchmark", "timing whole calls"),
    "graph_floor": Operation("benchmark", "timing a CUDA graph of the entry"),
    "record": Operation("benchmark", "recording the entry's launches"),
    "tuned": Operation("benchmark", "reading what the autotuner chose"),
    "load_plan": Operation("benchmark", "loading recorded launches"),
    "make_alternatives": Operation("inputs", "make_inputs"),
    "set_alternatives": Operation("inputs", "taking the inputs"),
    "keep_contents": Operation("inputs", "preparing other contents of the inputs"),
    "vary": Operation("reference", "the reference on other contents"),
    "vary_from": Operation("compare", "taking the baseline's outputs"),
    "judge_outputs": Operation("compare", "the comparison of a timed call's results"),
    "time_reference": Operation("reference", "getting the reference ready to be timed"),
    "ceilings": Operation("environment", "measuring what the GPU reaches"),
    "warm_up": Operation("environment", "opening the GPU"),
    "probe_profile": Operation("profile", "the profiled run of a known kernel"),
    "profile": Operation("profile", "the profiled call"),
    "profile_file": Operation("profile", "the profiled run of the file"),
    "count": Operation("profile", "the counted calls"),
    "load_reader": Operation("profile", "getting ready to read the profiler's report"),
    "read_report": Operation("profile", "reading the profiler's report"),
}
_TIMEOUT_CAUSES = {
    "load_kernel": "Code at module level that does not end.",
    "capture": "An endless loop in the entry, or a compile that does not end (very large blocks take minutes).",
    "run_file": "An endless loop, one that waits for results (outputs hold none here), or many slow compiles.",
    "call": "An endless loop in the entry or the kernel; in the interpreter, too many programs (about 1 ms each).",
    "first_call": "An endless loop in the entry or the kernel, or a compile that does not end.",
    "visit": "A kernel that hangs, or is far slower than in its first calls.",
}
_TIMEOUT_FIXES = {
    "call": "Check the loop's bound; for the interpreter mark a case of few programs with small=True.",
    "capture": "Check loops in the host code; cut block sizes (512 or more elements a thread compile for minutes).",
    "explain": "Compile without explain=true, or a smaller block size.",
    "run_file": "Call the kernel on fewer shapes or with fewer configurations, or give a task with one case.",
    "start": "A cold file cache can make the first import slow: try once more, then run `tritonforge-mcp doctor`.",
}
