"""The one interface behind which the vendors' compilers lie: what is kept of a launch, and how it is read.

For the GPUs of another vendor, write one more class like these, and its counterpart in `sandbox/worker/backends.py`,
which tells Triton what to compile for; name the vendor in `sandbox/facts.py`, and its architectures in the catalogue.
"""

from typing import Final, Protocol

from ...sandbox.facts import Capture, CapturedLaunch, Vendor
from ..hardware.model import Target
from . import amd, ttgir_lines
from . import details as lines
from .details import LaunchDetails
from .launch import LaunchFacts, RawLaunch, build
from .observations import Observation, observe


class Backend(Protocol):
    """How the compiler's output for one vendor's GPUs is read. Nothing in it is trusted, and nothing here raises.

    What a vendor's compiler does not tell is null, with the reason in `LaunchFacts.absent`.
    """

    stages: tuple[str, ...]
    """Texts of a launch that are worth handing out, by Triton's names, the nearest to the source first."""
    unobserved: str | None
    """Why nothing is said of what the code gives away; null where something is."""

    def facts(self, capture: Capture, launch: CapturedLaunch, target: Target) -> LaunchFacts:
        """One launch as a record."""
        ...

    def details(self, capture: Capture, launch: CapturedLaunch) -> LaunchDetails:
        """The same by line of the kernel file."""
        ...

    def observations(self, facts: LaunchFacts, target: Target) -> list[Observation]:
        """What the record gives away."""
        ...


class Nvidia:
    """PTX, and what ptxas said of it."""

    stages: tuple[str, ...] = ("ttgir", "ptx")
    unobserved: str | None = None

    def facts(self, capture: Capture, launch: CapturedLaunch, target: Target) -> LaunchFacts:
        raw = RawLaunch(
            kernel=launch.symbol,
            grid=launch.grid,
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
            num_ctas=launch.num_ctas,
            shared_bytes=launch.shared_bytes,
            ptx=capture.text(launch, "ptx"),
            ttgir=capture.text(launch, "ttgir"),
            ptxas_log=launch.ptxas_log,
        )
        return build(raw, target)

    def details(self, capture: Capture, launch: CapturedLaunch) -> LaunchDetails:
        return lines.details(capture.text(launch, "ptx"), capture.text(launch, "ttgir"))

    def observations(self, facts: LaunchFacts, target: Target) -> list[Observation]:
        return observe(facts, target.limits, target.gpu.sm_count if target.gpu is not None else None)


class Amd:
    """The amdgcn that LLVM writes, with what a kernel takes at its end."""

    stages: tuple[str, ...] = ("ttgir", "amdgcn")
    unobserved: str | None = (
        "Observations and places to look at are known for NVIDIA's code only: of AMD's nothing is said here."
    )

    def facts(self, capture: Capture, launch: CapturedLaunch, target: Target) -> LaunchFacts:
        return amd.build(launch, capture.text(launch, "amdgcn"), capture.text(launch, "ttgir"), target)

    def details(self, capture: Capture, launch: CapturedLaunch) -> LaunchDetails:
        return LaunchDetails(places=[], ptx=[], ttgir=ttgir_lines.sites(capture.text(launch, "ttgir")))

    def observations(self, facts: LaunchFacts, target: Target) -> list[Observation]:
        return []


_BACKENDS: Final[dict[Vendor, Backend]] = {"nvidia": Nvidia(), "amd": Amd()}


def backend_of(target: Target) -> Backend:
    """Who reads what was compiled for a target."""
    return _BACKENDS[target.limits.vendor]
