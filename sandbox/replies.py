"""What workers answer, checked: the part that all kinds of them share."""

import functools
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from .errors import ProtocolViolation, Stopped
from .outcome import Kind, Problem
from .process import WorkerProcess
from .protocol import Blob, Frame
from .trees import check_tree

F = TypeVar("F")


class Values(NamedTuple):
    """Arguments or outputs on their way between workers: a JSON tree and raw tensor bytes, never looked into here."""

    tree: Any
    blobs: list[Blob]


@functools.cache
def _adapter(form: type[F]) -> TypeAdapter[F]:
    # Building one takes as long as a small comparison.
    return TypeAdapter(form)


class Replies:
    """Checks a reply's form once for both sides."""

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process

    def end(self) -> None:
        """Its work is done: it may go while others are still being left, which wait for it only at the end."""
        self.process.handle.kill()

    @staticmethod
    def checked(form: type[F], what: str, data: Any) -> F:
        try:
            return _adapter(form).validate_python(data)
        except ValidationError as error:
            raise malformed(what, error) from error


def malformed(what: str, error: Exception) -> Stopped:
    """A reply that is not of its form: only a worker that something else has taken over sends one."""
    # pydantic's own text is long, and sends its reader to a manual.
    found = error.errors() if isinstance(error, ValidationError) else []
    wrong = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in found[:3]) or str(error)
    told = "something else than the worker wrote into it, such as a child that the file's code has forked"
    return Stopped(
        Kind.CHEATING,
        Problem(
            stage="worker",
            message=f"the worker's {what} is malformed: {wrong}"[:400] + f": {told}",
            likely_fix="Take out whatever forks, starts processes or threads, or writes to open file descriptors.",
        ),
    )


def values_of(frame: Frame) -> Values:
    """What a worker passes on to another, of a form that the other can read."""
    tree: Any = frame.fields.get("tree")
    try:
        check_tree(tree, len(frame.blobs))
    except ProtocolViolation as error:
        raise Stopped(Kind.CHEATING, Problem(stage="worker", message=str(error))) from error
    return Values(tree, frame.blobs)


def fields_of(frame: Frame) -> dict[str, Any]:
    """A reply without its blobs."""
    return {name: value for name, value in frame.fields.items() if name != "ok"}
