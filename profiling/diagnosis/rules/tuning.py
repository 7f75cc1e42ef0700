"""U: pitfalls of autotuning, from the source."""

import ast
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from ..edits import diff, with_argument
from ..facts import Facts, Need
from ..model import Level, Rewrite
from ..rule import Hit, Rule, seen
from ..source.host import Tuner, is_first_size, launches, shown, tuner
from ..source.kernel import LiveKernel
from ..source.syntax import calls, language

_SOURCE: Final[frozenset[Need]] = frozenset({"source"})
_SMALL_BLOCK: Final = 32
"""Own: a warp's width; no block of a tuned kernel is smaller."""
_VECTOR_BYTES: Final = 16
"""The most that a thread moves at once."""
_MANY: Final = 8
"""Own: from so many configurations on, tuning again costs a second and more: each is compiled and run for 0.1 s."""
_ENOUGH_STAGES: Final = 3
_WIDE_TILE: Final = 128 * 256
_WIDE_WARPS: Final = 8
"""Of a product on Hopper: with four warps a thread's part of the sum alone takes 256 registers."""
_ROWS: Final = re.compile(r"(?:BLOCK(?:_SIZE)?_?|B|TILE_?)M(?:_SIZE)?", re.IGNORECASE)
_COLUMNS: Final = re.compile(r"(?:BLOCK(?:_SIZE)?_?|B|TILE_?)N(?:_SIZE)?", re.IGNORECASE)


def _tuner(facts: Facts) -> Tuner | None:
    if facts.file is None or facts.source is None:
        return None
    return tuner(facts.file, facts.source.function)


def _several(found: Tuner | None) -> bool:
    """Whether it tunes: of one configuration nothing is tried."""
    return found is not None and found.count != 1


def _on_live_data(facts: Facts) -> list[Hit]:
    found = _tuner(facts)
    if found is None or facts.source is None or found.hooked or not _several(found):
        return []
    accesses = facts.source.accesses
    loaded = [access.address for access in accesses if access.kind == "load"]
    for access in accesses:
        pointer = access.pointer
        if pointer is None or pointer in found.guarded:
            continue
        adds = access.kind == "atomic" and isinstance(access.call.func, ast.Attribute)
        if adds and isinstance(access.call.func, ast.Attribute) and access.call.func.attr == "atomic_add":
            told = f"each run adds to `{pointer}`"
        elif access.kind == "store" and access.address in loaded:
            told = f"each run stores to elements of `{pointer}` that it loads as well"
        else:
            continue
        said = seen(Level.SOURCE, "neither reset_to_zero nor restore_value names it, and no hook is given", found.line)
        return [Hit((seen(Level.SOURCE, told, access.line), said), found.line, (pointer,))]
    return []


def _restored(facts: Facts, hit: Hit) -> Rewrite:
    found, edit = _tuner(facts), None
    if found is not None and facts.file is not None and not found.guarded:
        place = with_argument(facts.file, found.call, f'restore_value=["{hit.subject[0]}"]')
        edit = diff(facts.file, [place]) if place is not None else None
    return Rewrite(
        recipe=f'Give the tuner restore_value=["{hit.subject[0]}"], or reset_to_zero where it starts from zeros.',
        diff=edit,
        no_diff=None if edit else "the decorator names others already, or its end can't be read",
    )


def _parameters_of(kernel: LiveKernel, nodes: Sequence[ast.expr]) -> list[str]:
    """Parameters that expressions depend on, through local names; none of those that decide what is loaded."""
    seen_names: dict[str, None] = {}
    waiting = list(nodes)
    while waiting:
        for each in ast.walk(waiting.pop()):
            if isinstance(each, ast.Name) and each.id not in seen_names:
                seen_names[each.id] = None
                given = kernel.definitions.get(each.id, [])
                waiting += [value for value in given if not any(language(call) == "load" for call in calls(value))]
    return [name for name in seen_names if name in kernel.function.parameters]


def _coarse_key(facts: Facts) -> list[Hit]:
    found = _tuner(facts)
    if found is None or facts.source is None or found.key is None or not _several(found):
        return []
    tried = {name for each in found.choices for name in each}
    words = {word for name in found.key for word in name.lower().split("_")} | {name.lower() for name in found.key}
    products = {id(loop.node) for call in facts.source.named("dot") for loop in call.place.loops}
    for loop in facts.source.loops:
        bounds = loop.call.args if loop.call is not None and id(loop.node) in products else []
        lengths = [
            n
            for n in _parameters_of(facts.source, bounds)
            if n not in tried and not facts.captured.signature.get(n, "").startswith("*")
        ]
        if not lengths or any(name.lower() in words for name in lengths):
            continue
        told = f"the length of the product's loop depends on {' and '.join(lengths[:3])}"
        key = seen(Level.SOURCE, f"key is {list(found.key)}", found.line)
        return [Hit((seen(Level.SOURCE, told, loop.line), key), found.line, tuple(lengths[:3]))]
    return []


def _fine_key(facts: Facts) -> list[Hit]:
    found = _tuner(facts)
    if found is None or found.key is None or facts.file is None or found.count is None or found.count < _MANY:
        return []
    for launch in launches(facts.file, facts.captured.kernel):
        for name in found.key:
            given = launch.given.get(name)
            if given is not None and is_first_size(launch.meant(given)):
                told = f"`{name}` of the key comes from `{shown(facts.file, launch.meant(given))}`"
                tries = seen(Level.SOURCE, f"each new value tries {found.count} configurations", found.line)
                return [Hit((seen(Level.SOURCE, told, given.lineno), tries), found.line, (name,))]
    return []


def _old_list(facts: Facts) -> list[Hit]:
    found = _tuner(facts)
    if found is None or facts.source is None or not found.count or facts.target.limits.capability != 90:
        return []
    if not any(call.place.loops for call in facts.source.named("dot")):
        return []
    stages = found.values("num_stages")
    if stages and stages[-1] < _ENOUGH_STAGES:
        told = f"no configuration has more than {stages[-1]} stages"
        return [Hit((seen(Level.SOURCE, told, found.line),), found.line)]
    for each in found.choices:
        sides = [
            max((max(v, default=0) for n, v in each.items() if of.fullmatch(n)), default=0) for of in (_ROWS, _COLUMNS)
        ]
        if sides[0] * sides[1] >= _WIDE_TILE and max(each["num_warps"], default=_WIDE_WARPS) < _WIDE_WARPS:
            told = f"the tile of {sides[0]} by {sides[1]} has {max(each['num_warps'])} warps"
            return [Hit((seen(Level.SOURCE, told, found.line),), found.line)]
    return []


def _holes(facts: Facts) -> list[Hit]:
    found = _tuner(facts)
    if found is None or found.count is None:
        return []
    for name in dict.fromkeys(name for each in found.choices for name in each):
        tried = found.values(name)
        missing = _missing(name, tried)
        if name == "num_stages" and not _pipelined(facts):
            continue  # without a loop it does nothing
        if missing:
            told = f"{name} is tried at {', '.join(map(str, tried))}, but not at {', '.join(map(str, missing))}"
            return [Hit((seen(Level.SOURCE, told, found.line),), found.line, (name,))]
    return []


def _pipelined(facts: Facts) -> bool:
    return facts.source is not None and any(loop.kind == "for" for loop in facts.source.loops)


def _missing(name: str, tried: list[int]) -> list[int]:
    """What lies between the values of a list of three and more."""
    if len(tried) < 3 or tried[0] < 1:
        return []
    doubled = all(b == 2 * a for a, b in pairwise(tried))
    if name == "num_stages" and not doubled:
        return [each for each in range(tried[0], tried[-1]) if each not in tried]
    if any(each & (each - 1) for each in tried):
        return []
    between = [1 << power for power in range(tried[0].bit_length(), tried[-1].bit_length() - 1)]
    return [each for each in between if each not in tried]


def _untuned(facts: Facts) -> list[Hit]:
    function = facts.source.function if facts.source is not None else None
    if function is None or function.autotuned or _fills_threads(facts):
        return []
    arguments = function.node.args.args
    defaults = function.node.args.defaults
    for argument, default in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True):
        block = argument.arg in function.constants and "BLOCK" in argument.arg.upper()
        size = default.value if isinstance(default, ast.Constant) else None
        small = isinstance(size, int) and size <= _SMALL_BLOCK
        if block and small and facts.captured.constexprs.get(argument.arg) == size:
            told = f"{argument.arg} stays at its default of {size}, and nothing tunes the kernel"
            return [Hit((seen(Level.SOURCE, told, argument.lineno),), argument.lineno)]
    return []


def _fills_threads(facts: Facts) -> bool:
    """Whether the tile is large, however short one of its sides: each thread has something to move at its widest.

    On an H200 a sum of columns by tiles of 64x32, a default, took 43.3 us, and by 64x128 62.1: a quarter of the blocks
    was left.
    """
    launch = facts.launch
    if launch is None or launch.elements_per_program_max is None or launch.element_bytes is None:
        return False
    threads = launch.num_warps * facts.target.limits.warp_threads
    return launch.elements_per_program_max * launch.element_bytes >= threads * _VECTOR_BYTES


def _rule(
    id: str,
    name: str,
    weight: int,
    detect: Callable[[Facts], list[Hit]],
    cause: str,
    recipe: str,
    example: str,
    wrong: str,
) -> Rule:
    return Rule(
        id=id,
        name=name,
        level=Level.SOURCE,
        needs=_SOURCE,
        weight=weight,
        detect=detect,
        explain=lambda facts, hit: cause,
        rewrite=lambda facts, hit: Rewrite(recipe=recipe, no_diff="which values are worth a try only timing tells"),
        predicts=lambda facts, hit: [],
        falsified_by=wrong,
        example=example,
    )


U1: Final = Rule(
    id="U1",
    name="Tuning runs a kernel that changes its own input",
    level=Level.SOURCE,
    needs=_SOURCE,
    weight=56,
    detect=_on_live_data,
    explain=lambda facts, hit: (
        f"The tuner runs each configuration many times on the caller's data, and every run changes `{hit.subject[0]}` "
        "again: the call that tunes returns a wrong result, and later runs work on other data than the first."
    ),
    rewrite=_restored,
    predicts=lambda facts, hit: [],
    falsified_by="The first call with a new key returns the same as the second one.",
    example="@triton.autotune(configs, key=['n'])\n->\n@triton.autotune(configs, key=['n'], restore_value=['out_ptr'])",
    relieves="call",
    risks=("a pre_hook= of the tuner switches reset_to_zero and restore_value off",),
)
U2: Final = _rule(
    "U2", "The tuner's key lacks the length of the product's loop", 38, _coarse_key,
    "The tuner tries once for each value of key and for each set of types, and keeps the winner for all other shapes.",
    "Name the argument in key, rounded up to a power of two on the host if it takes many values.",
    "@triton.autotune(configs, key=['M', 'N'])\n->\n@triton.autotune(configs, key=['M', 'N', 'K'])",
    "The winner is the same for short and long loops (TRITON_PRINT_AUTOTUNING=1 tells it).",
)  # fmt: skip
U3: Final = _rule(
    "U3", "The tuner's key changes with the size of the batch", 24, _fine_key,
    "The tuner tries all configurations again for each new value: a second and more where calls differ in length.",
    "Put a rounded value into key instead: the next power of two, as an argument of its own.",
    "kernel[grid](x, M)   # key=['M']\n->\nkernel[grid](x, M, M_KEY=triton.next_power_of_2(M))   # key=['M_KEY']",
    "Calls always have the same size.",
)  # fmt: skip
U7: Final = _rule(
    "U7", "The tuner's configurations are not made for Hopper", 39, _old_list,
    "Matrix products of Hopper's warp groups want 3 or 4 stages of loads ahead, and 8 warps for tiles of 128 by 256.",
    "Add configurations with num_stages=3 and 4, and num_warps=8 for the largest tiles.",
    "triton.Config({'BLOCK_M': 128, 'BLOCK_N': 256, 'BLOCK_K': 64}, num_warps=4, num_stages=2)\n->\n"
    "triton.Config({'BLOCK_M': 128, 'BLOCK_N': 256, 'BLOCK_K': 64}, num_warps=8, num_stages=3)",
    "The added configurations are slower.",
)  # fmt: skip
U15: Final = _rule(
    "U15", "The tuner's list has a hole", 22, _holes,
    "The best value may be one that the list leaves out.",
    "Add what is missing, and look whether the winner lies at an end of the list: then extend it there.",
    "num_stages in (3, 4, 7)\n->\nnum_stages in (2, 3, 4, 5)",
    "The winner does not lie beside the hole.",
)  # fmt: skip
U16: Final = Rule(
    id="U16",
    name="Nothing tunes the kernel, and its block is tiny",
    level=Level.SOURCE,
    needs=_SOURCE,
    weight=37,
    detect=_untuned,
    explain=lambda facts, hit: "A default of a port or a test; autotune decorators get lost.",
    rewrite=lambda facts, hit: Rewrite(
        recipe="Give the block that the shapes need, or put triton.autotune with several configurations.",
        no_diff="which block the shapes need can't be told from the source",
    ),
    predicts=lambda facts, hit: [],
    falsified_by="A larger block takes as long.",
    example="def kernel(x, BLOCK: tl.constexpr = 16)\n->\n@triton.autotune([triton.Config({'BLOCK': b}) for b in (128, "
    "256)], key=['n'])",
)

RULES: Final = (U1, U7, U2, U16, U3, U15)
DROPPED: Final[dict[str, str]] = {
    "U4": "needs every configuration to be compiled, and a diagnosis looks at one launch",
    "U5": "the launch fails, so that there is nothing to diagnose",
    "U6": "never a finding: a single configuration is mostly meant, and costs nothing",
    "U8": "how one profiles, not what the kernel does",
    "U9": "how one times, not what the kernel does",
    "U10": "costs the first call of a process, not the launch",
    "U11": "needs the data that the tuner ran on, which nothing here records",
    "U12": "the launch fails with AutotunerError, so that there is nothing to diagnose",
    "U13": "a warning about old arguments, which costs no time",
    "U14": "the launch fails: a heuristic above the tuner asks for a value that no configuration has set yet",
    "C1": "correctness, not speed: an offset beyond 32 bits shows as a wrong result or an illegal access",
    "C2": "correctness, not speed: the check of results puts margins around each tensor",
    "C3": "told as U1",
    "C4": "correctness, not speed: a race between programs does not show in the code of one launch",
    "C5": "correctness, not speed: whether the compiler is at fault only another version of it tells",
    "C6": "never a finding: tf32 is the default, and what T4 offers names its error",
    "C7": "a fault of Triton's interpreter, which is no reference here",
    "C8": "never a finding: what a later version of Triton will do",
}
"""Entries of the catalogue without a rule, and why. Those of C are all of their family."""
