"""What rewrites have saved on a real GPU, kernel by kernel: the calibration of the catalogue."""

from typing import Final, NamedTuple


class Measured(NamedTuple):
    """One planted defect of `tests/diagnosis/defects`."""

    name: str
    id: str
    slow_us: float
    """With the defect: median of the device times of calls with cold caches."""
    fixed_us: float
    """After the rewrite."""
    saved_pct: float
    expected_pct: float | None
    """That the tool told from a profile of the slow one; None: it tells none for this rule."""
    top: str
    """The id that was named first; `done`: nothing was said to be left to win."""


WHERE: Final = ""
MEASURED: Final[tuple[Measured, ...]] = ()
UNPLANTED: Final[dict[str, str]] = {}
