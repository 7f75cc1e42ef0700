"""A worker that is timed: the same requests, whatever it times."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from .replies import Replies, Values, fields_of, malformed, values_of
from .timing_facts import FirstCall, GraphFloor, LaidOut, Visit

CallTime = Annotated[float, Field(ge=1e-3, le=1e12)]
"""Microseconds; the host's clock counts nanoseconds."""


class TimedWorker(Replies):
    """A process with an entry and its inputs. `prepare`, `first_call` and `lay_out` come first, in this order."""

    async def set_inputs(self, values: Values, *, offset: int = 0, reuse: bool = False) -> None:
        """Hand over the inputs of the next calls.

        Args:
            values: what the task's worker made.
            offset: elements by which each tensor's storage is shifted.
            reuse: put them where the inputs before lay, where the forms agree.
        """
        await self.process.request("set_inputs", values.blobs, tree=values.tree, offset=offset, reuse=reuse)

    async def set_alternatives(self, values: Values) -> None:
        """Hand over other values for integer and boolean inputs: what `TaskWorker.make_alternatives` gave."""
        await self.process.request("set_alternatives", values.blobs, tree=values.tree)

    async def prepare(self, flush_bytes: int, seed: int | None) -> None:
        """Allocate what timing needs.

        Args:
            flush_bytes: read before each call to empty L2; 0 leaves it warm.
            seed: of the contents of inputs, see `visit`; None: they are always the same.
        """
        await self.process.request("prepare", flush_bytes=flush_bytes, seed=seed)

    async def first_call(self) -> FirstCall:
        """Compile and autotune."""
        return self.checked(FirstCall, "first call", fields_of(await self.process.request("first_call")))

    async def lay_out(self, calls: int) -> LaidOut:
        """Make the places that visits of so many calls rotate over."""
        return self.checked(LaidOut, "layouts", fields_of(await self.process.request("lay_out", calls=calls)))

    async def visit(self, number: int, contents: Sequence[int]) -> Visit:
        """Time one call for each of ``contents``.

        Args:
            number: chooses the layout.
            contents: what the inputs hold in each call. The same one and the same seed of `prepare` give the same
                values in each worker on the same device.
        """
        frame = await self.process.request("visit", number=number, contents=list(contents))
        return self.checked(Visit, "samples", fields_of(frame))

    async def outputs(self, index: int) -> Values:
        """What one call of the last visit returned."""
        return values_of(await self.process.request("outputs", index=index))

    async def call_times(self, calls: int) -> list[float]:
        """Host call to completion, in microseconds."""
        frame = await self.process.request("call_times", calls=calls)
        found = self.checked(list[CallTime], "call times", frame.fields.get("call_us"))
        if len(found) != calls:
            raise malformed("call times", ValueError(f"{len(found)} of {calls}"))
        return found

    async def release(self) -> None:
        """Have it give back the memory of its inputs and of what was measured on them."""
        await self.process.request("release")

    async def graph_floor(self, calls: int) -> GraphFloor:
        """What a call takes as a CUDA graph, so many of them replayed."""
        fields: dict[str, Any] = fields_of(await self.process.request("graph_floor", calls=calls))
        return self.checked(GraphFloor, "graph", fields)
