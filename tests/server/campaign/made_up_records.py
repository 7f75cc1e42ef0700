"""Records of kernels that nobody measured."""

from pathlib import Path
from typing import Any

from tritonforge.server.campaign.folder import Frozen
from tritonforge.server.campaign.model import CaseTime, Entry, Gain, KernelRecord, Plan, Unseen


def gain(ratio: float, low: float | None = None, high: float | None = None) -> Gain:
    low, high = low or ratio * 0.99, high or ratio * 1.01
    comparison = "faster" if low > 1 else "slower" if high < 1 else "ambiguous"
    return Gain(ratio=ratio, ratio_low=low, ratio_high=high, comparison=comparison)


def made(name: str, outcome: Any, *, lines: int = 10, **more: Any) -> KernelRecord:
    """A record; with a timed baseline where its outcome needs one."""
    if outcome in ("measured", "no_gain", "gained"):
        more.setdefault("baseline", [CaseTime(case="a", device_us=10.0, speed_of_light_pct=50.0)])
    return KernelRecord(name=name, path=f"{name}.py", lines=lines, outcome=outcome, **more)


def gained(name: str, ratio: float, **more: Any) -> KernelRecord:
    """A winner, measured once more at the end."""
    return made(name, "gained", gain=gain(ratio), verified=gain(ratio), **more)


def on(case: str, ratio: float | None = None, kind: str = "ok") -> Unseen:
    """A winner on another shape."""
    return Unseen(case=case, kind=kind, gain=None if ratio is None else gain(ratio))


def begun(*records: KernelRecord, left: int = 0, **plan: Any) -> Frozen:
    """A campaign over these kernels and some that it is not through with."""
    names = [record.name for record in records] + [f"left{number}" for number in range(left)]
    return Frozen(
        plan=Plan.model_validate({"folder": Path("/home/me/kernels"), "agent": "tune", **plan}),
        entries=[Entry(name=name, path=Path(f"{name}.py"), lines=10) for name in names],
        version="0.1.0",
        begun_at="2026-11-30T12:34:56+00:00",
    )
