"""Exceptions as data: what happened, in whose code, on which line. What it means is decided above."""

from __future__ import annotations

import traceback
from typing import Any

MESSAGE_LIMIT = 4000
NAME_LIMIT = 200


class Refused(Exception):
    """The request can't be carried out as given; ``kind`` and ``stage`` say which sort of refusal it is."""

    def __init__(self, kind: str, stage: str, message: str, *, line: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.stage = stage
        self.line = line


class Sources:
    """The source texts that this worker has loaded, by the scratch file they were written to."""

    def __init__(self) -> None:
        self._by_path: dict[str, tuple[str, str]] = {}

    def add(self, scratch_path: str, shown_as: str, text: str) -> None:
        """Remember that errors in ``scratch_path`` belong to the file that the caller knows as ``shown_as``."""
        self._by_path[scratch_path] = (shown_as, text)

    def get(self, path: str) -> tuple[str, str] | None:
        return self._by_path.get(path)

    def all(self) -> list[tuple[str, str]]:
        return list(self._by_path.values())


def describe(error: BaseException, stage: str, sources: Sources) -> dict[str, Any]:
    """Turn an exception into the fields of a failure frame."""
    chain = _chain(error)
    root = chain[-1] if _is_wrapper(error) else error
    refusal = error if isinstance(error, Refused) else None
    # What wraps the root says where it happened: a ValueError inside a CompilationError stopped the compiler.
    meant = chain if _is_wrapper(error) else [error]
    failure: dict[str, Any] = {
        "stage": stage if refusal is None else refusal.stage,
        "kind": None if refusal is None else refusal.kind,
        "exception": f"{type(root).__module__}.{type(root).__qualname__}".removeprefix("builtins.")[:NAME_LIMIT],
        "bases": list(dict.fromkeys(base.__name__ for member in meant for base in type(member).__mro__[:-1])),
        "message": _message(root),
        "file": None,
        "line": None if refusal is None else refusal.line,
        "excerpt": None,
    }
    place = _compile_place(chain, sources) or _syntax_place(chain, sources) or _frame_place(chain, sources)
    if place is not None:
        failure["file"], line, text = place
        if failure["line"] is None:
            failure["line"] = line
        failure["excerpt"] = excerpt(text, failure["line"])
    return failure


def excerpt(text: str, line: int, around: int = 2) -> str:
    """The numbered lines about ``line`` (1-based), the line itself marked."""
    lines = text.splitlines()
    first, last = max(line - around, 1), min(line + around, len(lines))
    return "\n".join(
        f"{'>' if number == line else ' '} {number:4d} | {lines[number - 1][:200]}" for number in range(first, last + 1)
    )


def _message(error: BaseException) -> str:
    text = getattr(error, "error_message", None) or str(error) or type(error).__name__
    # A lone surrogate would make the whole report unreadable above.
    return str(text)[:MESSAGE_LIMIT].encode("utf-8", "backslashreplace").decode()[:MESSAGE_LIMIT]


def _is_wrapper(error: BaseException) -> bool:
    """Triton's interpreter and its front end wrap the error that a reader wants."""
    return type(error).__name__ in {"InterpreterError", "CompilationError"} and error.__cause__ is not None


def _chain(error: BaseException) -> list[BaseException]:
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and len(chain) < 20:
        chain.append(cause)
    return chain


def _compile_place(chain: list[BaseException], sources: Sources) -> tuple[str, int, str] | None:
    """Triton counts lines from the decorated function's ``def``; find that function in a source of ours."""
    for error in reversed(chain):
        src, node = getattr(error, "src", None), getattr(error, "node", None)
        line = getattr(node, "lineno", None)
        if not isinstance(src, str) or line is None:
            continue
        for shown_as, text in sources.all():
            at = _find_dedented(text, src)
            if at is not None:
                return shown_as, at + line - 1, text
    return None


def _find_dedented(text: str, src: str) -> int | None:
    """The 1-based line of ``text`` at which ``src`` starts, indentation aside."""
    wanted = [line.strip() for line in src.rstrip().splitlines()]
    lines = [line.strip() for line in text.splitlines()]
    for start in range(len(lines) - len(wanted) + 1):
        if lines[start : start + len(wanted)] == wanted:
            return start + 1
    return None


def _syntax_place(chain: list[BaseException], sources: Sources) -> tuple[str, int, str] | None:
    for error in chain:
        if isinstance(error, SyntaxError) and error.filename and error.lineno:
            known = sources.get(error.filename)
            if known is not None:
                return known[0], error.lineno, known[1]
    return None


def _frame_place(chain: list[BaseException], sources: Sources) -> tuple[str, int, str] | None:
    """The innermost frame, over the whole chain, that lies in a source of ours."""
    for error in reversed(chain):
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            known = sources.get(frame.filename)
            if known is not None and frame.lineno:
                return known[0], frame.lineno, known[1]
    return None
