"""All cheats, by the rows of the list of how kernels cheat."""

from tests.cheats import fake, harness, reuse, work
from tests.cheats.cheat import Cheat

CHEATS: list[Cheat] = sorted(
    [cheat for module in (harness, reuse, fake, work) for cheat in (*module.CHEATS, *module.ON_GPU)],
    key=lambda cheat: cheat.row,
)


def on(where: str) -> list[Cheat]:
    """Those that can be tried on ``cpu`` (in the interpreter) or on ``gpu``."""
    return [cheat for cheat in CHEATS if where in cheat.on]
