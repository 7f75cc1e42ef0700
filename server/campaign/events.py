"""What a campaign's worker process tells its parent: a line of JSON each."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from ...sandbox.wire import Wire
from .model import KernelRecord


class Preparing(Wire):
    """The task of a kernel is being made."""

    event: Literal["preparing"] = "preparing"
    name: str


class Prepared(Wire):
    """The task of a kernel is there."""

    event: Literal["prepared"] = "prepared"
    name: str
    cases: int


class Started(Wire):
    """A kernel is being worked on."""

    event: Literal["started"] = "started"
    name: str


class Staged(Wire):
    """What is being done with it."""

    event: Literal["staged"] = "staged"
    name: str
    stage: str


class Finished(Wire):
    """A kernel is through; its record is on the disk."""

    event: Literal["finished"] = "finished"
    record: KernelRecord


class Halted(Wire):
    """The worker can't go on."""

    event: Literal["halted"] = "halted"
    why: str


AnyEvent = Preparing | Prepared | Started | Staged | Finished | Halted
Event = Annotated[AnyEvent, Field(discriminator="event")]
_EVENT: TypeAdapter[AnyEvent] = TypeAdapter(Event)


def parse(line: bytes) -> AnyEvent | None:
    """An event of a line; None for what is none."""
    try:
        return _EVENT.validate_json(line)
    except ValidationError:
        return None
