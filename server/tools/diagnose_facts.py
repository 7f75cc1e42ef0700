"""What a diagnosis is told of a launch beside its code: the call around it, and what the compiler said."""

import hashlib
from dataclasses import replace

from ...profiling.compiler import remarks, sass_facts
from ...profiling.diagnosis.facts import Call, Facts
from ...sandbox.facts import Capture, CapturedLaunch, Explanation
from .compile_findings import KERNEL_FILE
from .profile_case import CaseProfile


def call(data: CaseProfile, own: set[str]) -> Call | None:
    """What the call launched, where every launch was timed."""
    times = [(launch.profile.kernel, launch.profile.duration_us) for launch in data.launches]
    known = [(kernel, us) for kernel, us in times if us is not None]
    if len(known) < len(times) or not known:
        return None
    others: dict[str, float] = {}
    for kernel, us in known:
        if kernel not in own:
            others[kernel] = others.get(kernel, 0.0) + us
    return Call(
        us=sum(us for _, us in known),
        launches=len(known),
        others_us=sum(others.values()),
        others=tuple(sorted(others, key=lambda kernel: -others[kernel])),
        complete=not data.left_out,
    )


def told(capture: Capture, facts: Facts, explanation: Explanation | None) -> Facts:
    if explanation is None:
        return facts
    machine = None
    if explanation.sass is not None and facts.launch is not None:
        read = sass_facts.read(explanation.sass, capture.text(facts.captured, "ptx"), facts.launch.spill_bytes)
        machine = None if read is None else read.facts
    return replace(facts, remarks=remarks.parse(explanation.said, KERNEL_FILE), machine_code=machine)


def code(capture: Capture, launch: CapturedLaunch) -> str | None:
    blob = launch.assembly.get("cubin")
    return None if blob is None else hashlib.sha256(capture.blobs[blob]).hexdigest()
