"""How long to go on: blocks of one pair of processes where the answer is clear, else of others as well."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from .comparison import LOOKS, PairBlock, decide, log_ratios
from .times import Side, pairs
from .timing import Interleaving, until

CLEAR: Final = 0.03
"""An effect this large, as a log(ratio), needs no second pair of processes: none differ by so much."""
PAIR_ENDS: Final = (20, 40, 80)
"""At so many blocks in all another pair of processes takes over, the last time nothing does."""
PAIR_BLOCKS: Final = LOOKS[0]
"""The least that a pair of processes contributes."""

AnotherPair = Callable[[int], Awaitable[Interleaving | None]]
"""Gives the pair of a number, settled and ready to be timed; None where that would take too long."""


async def blocks_to_decide(
    first: Interleaving, others: Sequence[Side], another: AnotherPair, deadline: float
) -> list[list[PairBlock]]:
    """Time blocks until candidate and baseline are told apart, or told to be the same, or time is up.

    Args:
        first: sides of the first pair, candidate and baseline in front.
        others: sides beside them that are to be told from the candidate as well.
        another: gives further pairs.
        deadline: as `anyio.current_time` tells it.

    Returns:
        One list of blocks a pair of processes.

    Raises:
        Stopped: a call failed, or its results are wrong.
    """
    groups: list[list[PairBlock]] = []

    def with_(pair: Interleaving) -> list[list[PairBlock]]:
        candidate, baseline = pair.sides[:2]
        return [*groups, pairs(candidate.times, baseline.times)]

    def total(pair: Interleaving) -> int:
        return sum(map(len, with_(pair)))

    def told(pair: Interleaving) -> bool:
        blocks = with_(pair)
        enough = len(blocks[-1]) >= PAIR_BLOCKS and total(pair) in LOOKS
        return enough and decide(blocks) != "ambiguous"

    def all_told() -> bool:
        candidate = first.sides[0].times
        return told(first) and all(decide([pairs(candidate, side.times)]) != "ambiguous" for side in others)

    # Settling may have taken all the time of a slow kernel.
    await until(first, lambda: first.blocks > 0, math.inf)
    await until(first, lambda: all_told() or total(first) >= PAIR_ENDS[0], deadline)
    alone = with_(first)
    effect = sum(log_ratios(alone[0])) / len(alone[0])
    if abs(effect) > CLEAR and decide(alone) != "ambiguous":
        return alone
    for number, end in enumerate(PAIR_ENDS[1:], 1):
        if groups and (decide(groups) != "ambiguous" or anyio.current_time() >= deadline):
            return groups
        pair = await another(number)
        if pair is None:
            await until(first, lambda: all_told() or total(first) >= LOOKS[-1], deadline)
            return with_(first)
        groups = groups or alone
        await _go_on(pair, told, total, end, deadline)
        groups = with_(pair)
    return groups


async def _go_on(
    pair: Interleaving,
    told: Callable[[Interleaving], bool],
    total: Callable[[Interleaving], int],
    end: int,
    deadline: float,
) -> None:
    await until(pair, lambda: pair.blocks >= PAIR_BLOCKS, math.inf)
    await until(pair, lambda: told(pair) or total(pair) >= end, deadline)
