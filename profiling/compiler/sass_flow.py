"""Where control goes in machine code: successors of each instruction, and which of them lie in loops."""

import re
from typing import Final, NamedTuple

from .sass import Code, Instruction

_PREDICATE = re.compile(r"!?U?P\d")
_BARRIER = re.compile(r"B\d+")
_JUMPS: Final = ("BRA", "JMP")
_INDIRECT: Final = ("BRX", "BRXU", "JMX", "JMXU")
_ENDS: Final = ("EXIT", "RET", "KILL")


class Flow(NamedTuple):
    """Control flow of a kernel."""

    successors: list[list[int]]
    """Of each instruction within its function, by number; a call goes on behind it."""
    calls: dict[int, int]
    """Numbers of calls, with that of the first instruction of what they call."""
    complete: bool
    """False where a branch's target is not known before it is executed."""


def flow(code: Code) -> Flow:
    """Reads branches; time linear in the number of instructions."""
    count = len(code.instructions)
    successors: list[list[int]] = []
    calls: dict[int, int] = {}
    complete = True
    joins: dict[str, int] = {}
    """Where threads meet again, by barrier: the one set last in the text, as ptxas nests them."""
    for number, instruction in enumerate(code.instructions):
        target = code.labels.get(instruction.target or "")
        follows, found = True, list[int]()
        root = instruction.root
        barrier = _BARRIER.match(instruction.operands)
        if root in _JUMPS:
            follows = _conditional(instruction)
            complete &= target is not None
            found += [] if target is None else [target]
        elif root in _INDIRECT:
            follows, complete = instruction.guard is not None, False
        elif root in _ENDS:
            follows = instruction.guard is not None
        elif root == "CALL":
            complete &= target is not None
            if target is not None:
                calls[number] = target
        elif root == "BSSY" and barrier and target is not None:
            joins[barrier[0]] = target
        elif root == "BSYNC" and barrier and barrier[0] in joins:
            follows = instruction.guard is not None
            found.append(joins[barrier[0]])
        if follows and number + 1 < count:
            found.append(number + 1)
        successors.append([each for each in dict.fromkeys(found) if each < count])
    return Flow(successors, calls, complete)


def in_loops(found: Flow) -> list[bool]:
    """Whether each instruction can be executed again after itself, or is called from one that can."""
    looped = _cyclic(found.successors)
    called = [target for call, target in found.calls.items() if looped[call]]
    seen: set[int] = set()
    while called:
        number = called.pop()
        if number in seen:
            continue
        seen.add(number)
        looped[number] = True
        called += found.successors[number]
        if number in found.calls:
            called.append(found.calls[number])
    return looped


def _conditional(instruction: Instruction) -> bool:
    return (
        instruction.guard is not None
        or ".DIV" in instruction.opcode
        or ".CONV" in instruction.opcode
        or _PREDICATE.match(instruction.operands) is not None
    )


def _cyclic(successors: list[list[int]]) -> list[bool]:
    """Nodes on a cycle of two or more: an instruction that jumps to itself only ends a section.

    Tarjan's algorithm (SIAM J. Computing 1, 1972), without recursion.
    """
    count = len(successors)
    index, low = [-1] * count, [0] * count
    waiting, on_stack = list[int](), [False] * count
    cyclic = [False] * count
    clock = 0
    for root in range(count):
        if index[root] >= 0:
            continue
        path = [(root, 0)]
        while path:
            node, position = path.pop()
            if position == 0:
                index[node] = low[node] = clock
                clock += 1
                waiting.append(node)
                on_stack[node] = True
            elif on_stack[before := successors[node][position - 1]]:
                low[node] = min(low[node], low[before])
            for following in range(position, len(successors[node])):
                after = successors[node][following]
                if index[after] < 0:
                    path += [(node, following + 1), (after, 0)]
                    break
                if on_stack[after]:
                    low[node] = min(low[node], index[after])
            else:
                if low[node] == index[node]:
                    start = len(waiting) - 1
                    while waiting[start] != node:
                        start -= 1
                    members = waiting[start:]
                    del waiting[start:]
                    for member in members:
                        on_stack[member] = False
                        cyclic[member] = len(members) > 1
    return cyclic
