"""What a worker captured, once its texts are found to be there and of a size that can be read."""

from collections.abc import Sequence
from typing import Final

from .errors import Stopped
from .facts import Capture, Captured, Vendor
from .outcome import Kind, Problem
from .replies import malformed

LAUNCHES_LIMIT: Final = 256
"""Distinct launches of one capture that are looked at; a worker of ours sends no more."""
ASSEMBLY_LIMIT_BYTES: Final = 16 << 20
"""Of one text: reading one takes a second a megabyte and more."""
NEEDED_ASSEMBLY: Final[dict[Vendor, frozenset[str]]] = {
    "nvidia": frozenset({"ttgir", "ptx"}),
    "amd": frozenset({"ttgir", "amdgcn"}),
}


def capture_of(captured: Captured, blobs: Sequence[object], vendor: Vendor) -> Capture:
    """The launches with their texts.

    Raises:
        Stopped: ``cheating``, a text is missing; ``unsupported``, one is too long.
    """
    launches = captured.launches
    texts = [blob for blob in blobs if isinstance(blob, bytes)]
    if len(texts) < len(blobs) or not all(
        launch.assembly.keys() >= NEEDED_ASSEMBLY[vendor]
        and all(blob in range(len(texts)) for blob in launch.assembly.values())
        for launch in launches
    ):
        raise malformed("capture", ValueError("an assembly text is missing"))
    largest = max(map(len, texts), default=0)
    if largest > ASSEMBLY_LIMIT_BYTES:
        raise Stopped(
            Kind.UNSUPPORTED,
            Problem(
                stage="capture",
                message=f"the compiler's output for one kernel has {largest >> 20} MiB, and no more than "
                f"{ASSEMBLY_LIMIT_BYTES >> 20} MiB are read",
                likely_cause="Loops over tl.static_range or lists of constants unroll into enormous code.",
                likely_fix="Use range instead of tl.static_range, or a smaller tile.",
            ),
        )
    return Capture(launches[:LAUNCHES_LIMIT], texts, captured.left_out + len(launches[LAUNCHES_LIMIT:]))
