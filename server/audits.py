"""What was found out about tasks, kept for as long as the server runs: a task is audited once."""

import hashlib
import json
import secrets
from collections import OrderedDict
from typing import Any, Final

from ..profiling.audit import audit_case, require_sound
from ..sandbox.facts import Audit
from ..sandbox.source import Source
from ..sandbox.task import Task
from ..sandbox.workers import KernelWorker, TaskWorker

KEPT: Final = 512
"""Audits, each of one case."""


class Audits:
    """By task, case, parameters and reference; the oldest are forgotten."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Audit] = OrderedDict()

    def get(self, key: str) -> Audit | None:
        """The audit under this key."""
        return self._kept.get(key)

    def put(self, key: str, audit: Audit) -> None:
        """Keep an audit."""
        self._kept[key] = audit
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)


async def sound_audit(
    audits: Audits,
    case: str,
    spec: Task,
    tasks: TaskWorker,
    task: Source,
    reference: KernelWorker | None,
    baseline: Source | None,
    *,
    on_gpu: bool,
    parameters: dict[str, Any] | None = None,
) -> Audit:
    """The audit of a case, made where there is none yet.

    Args:
        audits: those made before.
        case: name of the case.
        spec: the task.
        tasks: worker of the loaded task.
        task: its file.
        reference: worker of the kernel whose outputs are expected; None: the task's own reference.
        baseline: its file.
        on_gpu: where the reference runs.
        parameters: those of a case that was made smaller.

    Raises:
        Stopped: ``rejected``: the case proves nothing.
    """
    expected = [baseline.text, baseline.origin] if baseline is not None else None
    parts = [task.text, task.origin, case, parameters, expected, on_gpu]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    audit = audits.get(key)
    if audit is None:
        audit = await audit_case(case, secrets.randbelow(1 << 31), spec, tasks, reference)
        audits.put(key, audit)
    require_sound(case, audit, spec)
    return audit
