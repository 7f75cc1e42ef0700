"""What run_correctness tells in words."""

from typing import Any, Final

from ...profiling.correctness import CaseResult
from ...profiling.sanitizer.report import sentence
from ...sandbox.outcome import Kind, Problem
from ...sandbox.source import Source
from ..sanitizing import SanitizerReport

INTERPRETER: Final = "interpreter"


def summary(
    results: list[CaseResult],
    shown: list[CaseResult],
    device: str,
    seeds: int,
    smaller: dict[str, dict[str, Any]],
    not_checked: dict[str, str],
) -> str:
    """One line a case, the wrong ones first."""
    right = sum(result.kind is Kind.OK for result in results)
    where = "on the GPU" if device != INTERPRETER else "in Triton's interpreter on the CPU (not on a GPU)"
    lines = [f"{right} of {len(results)} cases right, {seeds} seed(s) each, checked {where}."]
    for case, parameters in smaller.items():
        shown_as = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
        lines.append(f"No case is marked small: {case} was made smaller for the interpreter ({shown_as}).")
    for result in shown:
        if result.message is not None:
            on = (
                f"with seed {result.seeds[-1]}"
                if result.inputs == "random"
                else f"on {INPUTS_IN_WORDS.get(result.inputs or '', result.inputs)}"
            )
            lines.append(f"- {result.case}: WRONG {on}: {result.message}")
            continue
        line = (
            f"- {result.case}: ok, {result.elements:,} elements, max abs error {result.max_abs_error:.3g}, "
            f"max rel error {result.max_rel_error:.3g}"
        )
        if result.structured:
            line += f"; also on {', '.join(result.structured)}"
        if result.accuracy is not None:
            line += (
                f"; error against float64 {result.accuracy.error:.2g} (reference {result.accuracy.reference_error:.2g})"
            )
        if result.outside_triton_pct is not None and result.outside_triton_pct >= OUTSIDE_SHOWN_PCT:
            line += (
                f"; {result.outside_triton_pct:.0f} % of the device's time outside Triton: {result.outside_triton[0]}"
            )
        if result.nondeterministic is not None:
            line += f"; two calls differ in {result.nondeterministic.elements:,} elements (allowed by the task)"
        lines.append(line)
    lines += [f"- {case}: not checked{f': {why}' if why else ''}" for case, why in not_checked.items()]
    return "\n".join(lines)


INPUTS_IN_WORDS: Final = {
    "zeros": "inputs that are all zeros",
    "ones": "inputs that are all ones",
    "ramp": "inputs that are ramps (-1 to 1 in the order of memory)",
    "shifted": "random inputs shifted by 4",
    "large": "random inputs, times 8 to 256",
    "tiny": "random inputs, times 2^-3 to 2^-40",
    "negative_zero": "random inputs, every second element -0.0",
    "denormals": "inputs that are denormal numbers",
    "nan": "random inputs, some elements NaN",
    "inf": "random inputs, some elements infinite",
}
OUTSIDE_SHOWN_PCT: Final = 10.0
"""Share of the device's time outside Triton from which it is told."""


def next_step(wrong: list[CaseResult], on_gpu: bool) -> str:
    """What to do now."""
    if wrong:
        return f"{wrong[0].likely_fix} Then run_correctness again."
    if on_gpu:
        return "Time it against the baseline with benchmark."
    return "Compare compile facts with the baseline's; check on a GPU before you rely on it."


def problem(wrong: CaseResult, kernel: Source) -> Problem:
    """What is wrong with a case, for whoever mends the kernel."""
    assert wrong.message is not None
    return Problem(
        stage="compare",
        message=wrong.message,
        file=kernel.shown_as,
        likely_cause=wrong.likely_cause,
        likely_fix=wrong.likely_fix,
    )


SANITIZER_CAUSES: Final = {
    "memcheck": "A load or store outside of its tensor: a mask or a bound is missing.",
    "racecheck": "Two threads use the same shared memory without a barrier between them.",
    "initcheck": "Memory is read that nothing has written to.",
    "synccheck": "Not all threads of a block reach the same barrier.",
}


def sanitizer_lines(report: SanitizerReport) -> str:
    """One line a finding."""
    found = len(report.findings) + report.findings_omitted
    lines = [
        f"compute-sanitizer on case {report.case} ({', '.join(report.tools) or 'no tool ran'}): {found} finding(s)."
    ]
    lines += [f"- {sentence(finding)}" for finding in report.findings]
    lines += [f"- {tool} was not completed: {reason}" for tool, reason in report.failures.items()]
    return "\n".join(lines)
