# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""Exceptions as data: what happened, and on which line of the caller's own file."""

import textwrap

import pytest

from tests.sandbox.conftest import INNER_AT_FAULT

HEAD = """\
import triton
import triton.language as tl


"""
FACTORY = """\
def factory():
    @triton.jit
    def nested(x_ptr):
        # A comment between.
        x = tl.load(x_ptr)
        tl.store(x_ptr, inner(x))

    return nested
"""
SOURCE = HEAD + INNER_AT_FAULT + FACTORY
INNER = INNER_AT_FAULT.removeprefix("@triton.jit\n").rstrip("\n") + "\n"
NESTED = textwrap.dedent(SOURCE[SOURCE.index("    def nested") : SOURCE.index("\n    return nested")])


class CompilationError(Exception):
    """Has what Triton's has: the function's source from its ``def`` on, dedented, and the node at fault."""

    def __init__(self, src, line, message):
        super().__init__(f"at {line}:4: {message}")
        self.src = src
        self.node = type("Node", (), {"lineno": line})()
        self.error_message = message


class InterpreterError(Exception):
    pass


@pytest.fixture
def sources(failures):
    made = failures.Sources()
    made.add("/scratch/kernel.py", "my/kernel.py", SOURCE)
    return made


@pytest.fixture
def described(failures, sources):
    def run(error, stage="run"):
        return failures.describe(error, stage, sources)

    return run


def caused(error, cause):
    error.__cause__ = cause
    return error


def raised(text, path):
    """The exception that the execution of ``text``, known as ``path``, ends in."""
    try:
        exec(compile(text, path, "exec"), {})
    except Exception as error:  # noqa: BLE001 - any
        return error
    raise AssertionError("nothing was raised")


def test_an_exception_of_foreign_code_has_no_place(described):
    assert described(raised("raise ValueError('odd')", "/lib/other.py")) == {
        "stage": "run", "kind": None, "exception": "ValueError", "bases": ["ValueError", "Exception", "BaseException"],
        "message": "odd", "file": None, "line": None, "excerpt": None,
    }  # fmt: skip


def test_the_innermost_line_of_the_callers_file_is_the_place(failures):
    text = "def f():\n    g()\n\n\ndef g():\n    exec(compile('1 / 0', '/lib/other.py', 'exec'))\n\n\nf()\n"
    sources = failures.Sources()
    sources.add("/scratch/kernel.py", "my/kernel.py", text)
    found = failures.describe(raised(text, "/scratch/kernel.py"), "load", sources)
    assert (found["exception"], found["stage"], found["file"], found["line"]) == (
        "ZeroDivisionError", "load", "my/kernel.py", 6,
    )  # fmt: skip
    assert ">    6 |     exec(compile(" in found["excerpt"]


def test_the_place_may_lie_in_the_cause(failures):
    text = "x = 1\n1 / 0\n"
    sources = failures.Sources()
    sources.add("/scratch/kernel.py", "my/kernel.py", text)
    wrapped = caused(RuntimeError("wrapped"), raised(text, "/scratch/kernel.py"))
    found = failures.describe(wrapped, "run", sources)
    assert (found["exception"], found["message"], found["line"]) == ("RuntimeError", "wrapped", 2)


def test_a_compile_error_counts_lines_from_the_functions_def(described):
    found = described(CompilationError(INNER, 3, "NameError('UNKNOWN is not defined')"), "capture")
    assert (found["file"], found["line"]) == ("my/kernel.py", 8)
    assert found["message"] == "NameError('UNKNOWN is not defined')"
    assert "CompilationError" in found["bases"]


def test_a_compile_error_in_an_indented_function_is_found(described):
    found = described(CompilationError(NESTED, 4, "odd"))
    assert found["line"] == 16
    assert ">   16 |         tl.store(x_ptr, inner(x))" in found["excerpt"]


def test_a_compile_error_in_a_called_function_is_placed_in_that_function(described):
    inside = CompilationError(INNER, 3, "NameError('UNKNOWN is not defined')")
    found = described(caused(CompilationError(NESTED, 4, "in a call"), inside))
    assert (found["line"], found["message"]) == (8, "NameError('UNKNOWN is not defined')")


def test_the_root_of_a_compile_error_is_told_and_stays_a_compile_error(described):
    found = described(caused(CompilationError(INNER, 2, "wrapped"), ValueError("arange's range must be a power of 2")))
    assert (found["exception"], found["message"], found["line"]) == (
        "ValueError", "arange's range must be a power of 2", 7,
    )  # fmt: skip
    assert found["bases"] == ["CompilationError", "Exception", "BaseException", "ValueError"]


def test_the_interpreters_wrapping_is_taken_off(described):
    found = described(caused(InterpreterError("wrapped"), caused(InterpreterError("wrapped"), IndexError("odd"))))
    assert (found["exception"], found["message"]) == ("IndexError", "odd")
    assert "CompilationError" not in found["bases"]


def test_a_compile_error_in_a_function_of_another_file_has_no_line_of_ours(described):
    found = described(CompilationError("def other(x):\n    return x\n", 2, "odd"))
    assert (found["file"], found["line"], found["excerpt"]) == (None, None, None)


def test_a_syntax_error_is_placed_where_the_parser_stopped(failures, sources):
    text = "x = 1\nif True\n    pass\n"
    sources.add("/scratch/task.py", "my/task.py", text)
    error = raised(text, "/scratch/task.py")
    refusal = caused(failures.Refused("rejected", "source", "my/task.py is not valid Python", line=2), error)
    found = failures.describe(error, "task", sources)
    assert (found["file"], found["line"]) == ("my/task.py", 2)
    found = failures.describe(refusal, "task", sources)
    assert (found["kind"], found["stage"], found["file"], found["line"]) == ("rejected", "source", "my/task.py", 2)
    assert found["excerpt"] == "     1 | x = 1\n>    2 | if True\n     3 |     pass"


def test_a_refusal_carries_its_own_kind_and_stage(failures, described):
    found = described(failures.Refused("unsupported", "capture", "no"), "run")
    assert (found["kind"], found["stage"], found["message"]) == ("unsupported", "capture", "no")


def test_another_exception_has_no_say_in_kind_stage_or_line(described):
    error = ValueError("odd")
    error.kind, error.stage, error.line = "ok", "compare", 99  # pyright: ignore[reportAttributeAccessIssue]
    found = described(error)
    assert (found["kind"], found["stage"], found["line"]) == (None, "run", None)


def test_an_exception_without_words_is_called_by_its_name(described):
    assert described(AssertionError())["message"] == "AssertionError"


@pytest.mark.parametrize("text", ["x" * 100_000, "\ud800" * 3000, "é" * 100_000])
def test_a_long_or_odd_message_is_cut_to_what_can_be_sent(described, failures, text):
    message = described(ValueError(text))["message"]
    assert len(message) <= failures.MESSAGE_LIMIT
    message.encode()


def test_causes_in_a_circle_end(described):
    first, second = ValueError("a"), ValueError("b")
    caused(first, caused(second, first))
    assert described(first)["message"] == "a"


def test_an_excerpt_marks_the_line_among_its_neighbours(failures):
    text = "\n".join(f"line {number}" for number in range(1, 8))
    assert failures.excerpt(text, 4) == (
        "     2 | line 2\n     3 | line 3\n>    4 | line 4\n     5 | line 5\n     6 | line 6"
    )


@pytest.mark.parametrize(("line", "first", "last"), [(1, 1, 3), (2, 1, 4), (7, 5, 7)])
def test_an_excerpt_stops_at_the_ends_of_the_file(failures, line, first, last):
    text = "\n".join(f"line {number}" for number in range(1, 8))
    shown = failures.excerpt(text, line).splitlines()
    assert (shown[0][7:], shown[-1][7:]) == (f"| line {first}", f"| line {last}")
    assert sum(entry.startswith(">") for entry in shown) == 1


def test_an_excerpt_beyond_the_file_is_empty(failures):
    assert failures.excerpt("one\n", 50) == ""


def test_an_excerpt_of_very_long_lines_is_bounded(failures):
    assert len(failures.excerpt("x" * 1_000_000, 1)) < 300
