"""A: atomics that order more memory, or take more instructions, than their results need."""

import ast
from math import prod
from typing import Final

from ..edits import Edit, diff, replaced, with_argument
from ..expressions import calls_of, form_of, own_axes, reached, unit_axis
from ..facts import Facts, Need
from ..model import Level, Prediction, Rewrite
from ..narrow import tile_of
from ..rule import Hit, Rule, advice, seen
from ..source import form
from ..source.kernel import Access
from ..source.syntax import dotted, keyword, language

_NEEDS: Final[frozenset[Need]] = frozenset({"source", "code", "lines"})
_REDUCIBLE: Final = frozenset({"atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor"})
_VECTOR: Final = 4
"""Elements of fp32 that one atomic of sm_90 adds (PTX ISA, `red` with `.v4`); there is none for integers."""
_LATE: Final = frozenset({"M3", "R3"})
"""Warps wait for their atomics as for loads: more of them would wait for the same."""
_LOCKS: Final = frozenset({"atomic_cas", "atomic_xchg"})


def _atomics(facts: Facts) -> list[Access]:
    return [] if facts.source is None else [access for access in facts.source.accesses if access.kind == "atomic"]


def _ordering(facts: Facts) -> list[Hit]:
    hits: list[Hit] = []
    if any(language(access.call) in _LOCKS for access in _atomics(facts)):
        return []  # a lock, or a flag: its order is what it is for
    for access in _atomics(facts):
        if keyword(access.call, "sem") is not None or not isinstance(access.place.statement, ast.Expr):
            continue
        sites = [
            each for each in facts.instructions("atomic") if each.line == access.line and each.semantics != "relaxed"
        ]
        if not sites:
            continue
        count, looped = sum(each.count for each in sites), any(each.in_loop for each in sites)
        told = seen(
            Level.CODE,
            f"{count} x {sites[0].instruction}{' in a loop' if looped else ''}: each is a fence, and empties L1",
            access.line,
            "launch.acq_rel_atomics",
            facts.launch.acq_rel_atomics if facts.launch else None,
        )
        hits.append(
            Hit((seen(Level.SOURCE, "the result is not used, and no sem is given", access.line), told), access.line)
        )
    return hits[:1]


def _relaxed(facts: Facts, hit: Hit) -> Rewrite:
    edits = [
        edit
        for access in _atomics(facts)
        if facts.file is not None
        and keyword(access.call, "sem") is None
        and isinstance(access.place.statement, ast.Expr)
        if access.line == hit.line and (edit := with_argument(facts.file, access.call, 'sem="relaxed"')) is not None
    ]
    edit = diff(facts.file, edits) if facts.file is not None and edits else None
    return Rewrite(
        recipe='Give sem="relaxed" to atomics that only add up, and publish nothing.',
        applies_if="no other program reads data that this atomic announces",
        diff=edit,
        no_diff=None if edit else "the call's end could not be read",
    )


def _scalar_half(facts: Facts) -> list[Hit]:
    for access in _atomics(facts):
        for site in facts.instructions("atomic"):
            half = site.instruction.endswith(("f16", "bf16")) and site.vector == 1
            if site.line == access.line and half:
                told = seen(Level.CODE, f"{site.count} x {site.instruction}, one element each", access.line)
                return [Hit((told,), access.line)]
    return []


def _float_extreme(facts: Facts) -> list[Hit]:
    """Triton makes a float's extreme of one signed and one unsigned atomic."""
    for access in _atomics(facts):
        if language(access.call) not in ("atomic_max", "atomic_min"):
            continue
        if not facts.captured.signature.get(access.pointer or "", "").startswith("*fp"):
            continue
        sites = [site for site in facts.instructions("atomic") if site.line == access.line]
        roots = {site.instruction.rpartition(".")[2] for site in sites}
        count = sum(site.count for site in sites)
        if count > 2 and len(roots) > 1:
            remark = facts.said("narrow-atomic", access.line)
            told = [
                seen(
                    Level.CODE,
                    f"{count} scalar atomics of {' and '.join(sorted(roots))}",
                    access.line,
                    "launch.atomics",
                    count,
                )
            ]
            told += [] if remark is None else [seen(Level.COMPILER, f"compiler: {remark.message}", access.line)]
            return [Hit(tuple(told), access.line)]
    return []


def _count_at(facts: Facts, line: int) -> int:
    return sum(site.count for site in facts.instructions("atomic") if site.line == line)


def _elements_at(facts: Facts, line: int) -> int:
    """Of the largest tile that atomics of a line go to; 1 for a single address."""
    tiles = [tile for site in facts.operations_at(line) if (tile := tile_of(site, "atomic")) is not None]
    return max((tile.elements for tile in tiles), default=1)


def _same_addresses(facts: Facts) -> list[Hit]:
    """One program adds to the same few addresses again and again."""
    for access in _atomics(facts):
        elements, count = _elements_at(facts, access.line), _count_at(facts, access.line)
        if language(access.call) not in _REDUCIBLE or elements == 1 or not count:
            continue
        addresses = _few(facts, access)
        told = seen(Level.CODE, f"{count} atomics a thread, for {elements} elements", access.line)
        if addresses is not None and addresses < elements:
            source = f"a program's {elements} elements go to {addresses} addresses: {elements // addresses} to each"
            return [Hit((seen(Level.SOURCE, source, access.line), told), access.line, ("sum",))]
        if _counts(access):
            source = "a histogram: 1 is added at an address that comes from memory, element by element"
            return [Hit((seen(Level.SOURCE, source, access.line), told), access.line, ("histogram",))]
    return []


def _few(facts: Facts, access: Access) -> int | None:
    """To how many addresses the lanes of an atomic go, where a remainder by a constant limits them."""
    address = keyword(access.call, "pointer", 0)
    if facts.source is None or any(form.lanes_of(term) is not None for term in access.address):
        return None
    parts = [each for term in access.address for each in term if each.has_lanes]
    if [each.kind for each in parts] != ["remainder"]:
        return None
    for node in reached(facts.source, address):
        match node:
            case ast.BinOp(left=left, op=ast.Mod(), right=right) if form.has_lanes(form_of(facts, left)):
                number = form.number(form_of(facts, right))
                return number if number is not None and number > 0 else None
            case _:
                pass
    return None


def _counts(access: Access) -> bool:
    value = keyword(access.call, "val", 1)
    loaded = any(each.kind == "loaded" and each.has_lanes for term in access.address for each in term)
    return loaded and isinstance(value, ast.Constant)


def _reduced_first(facts: Facts, hit: Hit) -> Rewrite:
    if hit.subject == ("histogram",):
        return Rewrite(
            recipe="Count in the program first, by tl.histogram, and add the tile of counts: one atomic for each bin.",
            example="tl.atomic_add(counts + bins, 1)\n->\n"
            "tl.atomic_add(counts + tl.arange(0, BINS), tl.histogram(bins, BINS))",
            applies_if="there are fewer bins than elements of a block, and their number is known when it is compiled",
            no_diff="how many bins there are is not known",
        )
    return Rewrite(
        recipe="Reduce in the program first what goes to one address (tl.sum or tl.max, after tl.reshape where there "
        "are several), and do one atomic for each.",
        no_diff="the order of the elements decides how they are summed",
    )


def _integers(facts: Facts) -> list[Hit]:
    for access in _atomics(facts):
        if language(access.call) != "atomic_add" or unit_axis(access.address) is None:
            continue
        if facts.captured.signature.get(access.pointer or "") not in ("*i32", "*u32", "*i64", "*u64"):
            continue
        sites = [site for site in facts.instructions("atomic") if site.line == access.line and site.vector == 1]
        count = sum(site.count for site in sites)
        if count < _VECTOR:
            continue
        told = seen(
            Level.CODE, f"{count} x {sites[0].instruction}, one element each", access.line, "launch.atomics", count
        )
        remark = facts.said("narrow-atomic", access.line)
        said = [] if remark is None else [seen(Level.COMPILER, f"compiler: {remark.message}", access.line)]
        return [Hit((told, *said), access.line)]
    return []


def _split_needlessly(facts: Facts) -> list[Hit]:
    """Parts of one product are added up by atomics although whole products would fill the GPU."""
    if facts.source is None or facts.launch is None or not facts.launch.dots or facts.target.gpu is None:
        return []
    every = own_axes([call.node for call in facts.source.named("program_id")])
    for access in _atomics(facts):
        address, value = keyword(access.call, "pointer", 0), keyword(access.call, "val", 1)
        if language(access.call) != "atomic_add" or not calls_of(reached(facts.source, value), "dot"):
            continue
        own = own_axes(reached(facts.source, address))
        if every is None or own is None or not own:
            return []
        splits = prod(facts.captured.grid[axis] for axis in every - own)
        products = prod(facts.captured.grid) // max(splits, 1) * facts.launch.num_ctas
        sms, count = facts.target.gpu.sm_count, _count_at(facts, access.line)
        if splits < 2 or products < sms or not count:
            continue
        source = seen(Level.SOURCE, f"{splits} programs each add a part of the same product", access.line)
        told = f"{count} atomics a thread; {products} whole products would give each of {sms} SMs one"
        return [Hit((source, seen(Level.CODE, told, access.line, "launch.atomics", facts.launch.atomics)), access.line)]
    return []


def _barriers(facts: Facts) -> list[Hit]:
    for call in facts.source.named("debug_barrier") if facts.source is not None else []:
        sites = [site for site in facts.instructions("barrier") if site.line == call.line and site.in_loop]
        if sites and call.place.loops:
            count = sum(site.count for site in sites)
            source = seen(Level.SOURCE, "tl.debug_barrier stands in a loop", call.line)
            told = seen(Level.CODE, f"{count} x {sites[0].instruction} in each step", call.line, "ptx.barrier", count)
            return [Hit((source, told), call.line)]
    return []


def _without_barrier(facts: Facts, hit: Hit) -> Rewrite:
    edit = None
    for call in facts.source.named("debug_barrier") if facts.source is not None else []:
        line = call.line
        if line != hit.line or facts.file is None or facts.file.excerpt(line) != f"{dotted(call.node.func)}()":
            continue
        edit = diff(facts.file, [Edit(line, 0, line + 1, 0, "")]) or diff(facts.file, [replaced(call.node, "pass")])
    return Rewrite(
        recipe="Remove it: Triton puts barriers where threads of a program share data through shared memory.",
        applies_if="threads of the program don't read what other threads of it wrote to global memory in the loop",
        diff=edit,
        no_diff=None if edit else "the call does not stand alone on its line",
    )


A1: Final = Rule(
    id="A1",
    name="Atomics order all memory although nothing depends on it",
    example='tl.atomic_add(y + i, x)\n->\ntl.atomic_add(y + i, x, sem="relaxed")',
    level=Level.CODE,
    needs=_NEEDS,
    weight=65,
    detect=_ordering,
    explain=lambda facts, hit: (
        'The default sem="acq_rel" makes a fence of each: MEMBAR.ALL.GPU, CCTL.IVALL (L1 is '
        "invalidated) and an atomic that returns its value, in the place of one reduction."
    ),
    rewrite=_relaxed,
    predicts=lambda facts, hit: [
        Prediction(
            fact="launch.acq_rel_atomics", now=facts.launch.acq_rel_atomics if facts.launch else None, expected="falls"
        )
    ],
    falsified_by="The profile shows no waiting for fences (stall `membar`): contention or traffic is the cost.",
    risks=("programs that wait for this atomic before they read other data see old values",),
    explains=_LATE,
)
A3: Final = Rule(
    id="A3",
    name="A single half is added by an atomic",
    example="y = torch.zeros(n, dtype=torch.float16)\n->\ny = torch.zeros(n, dtype=torch.float32)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=48,
    detect=_scalar_half,
    explain=lambda facts, hit: "There is no atomic for one fp16 or bf16 in memory: it is a loop of compare-and-swap.",
    rewrite=lambda facts, hit: Rewrite(
        recipe="Accumulate into an fp32 buffer and convert it once, or add a whole tile, which is done in vectors.",
        no_diff="the buffer is made outside the kernel",
    ),
    predicts=lambda facts, hit: [],
    falsified_by="The atomics are too few to matter: the profile has no samples on the line.",
    risks=("sums get more accurate, not less",),
    explains=_LATE,
)
A4: Final = Rule(
    id="A4",
    name="Extremes of floats take two scalar atomics an element",
    example="tl.atomic_max(y + i, x)\n->\ntl.atomic_max(y, tl.max(x))   # if one maximum is wanted",
    level=Level.CODE,
    needs=_NEEDS,
    weight=49,
    detect=_float_extreme,
    explain=lambda facts, hit: (
        "The hardware has no atomic extreme of floats: Triton makes one of a signed and an unsigned "
        "integer's, each under a predicate."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Reduce in the program first (tl.max) and do one atomic, or keep the values as integers that sort "
        "alike.",
        no_diff="it depends on which elements share an address",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="launch.atomics", now=facts.launch.atomics if facts.launch else None, expected="falls")
    ],
    falsified_by="The atomics are too few to matter: the profile has no samples on the line.",
    explains=_LATE,
)
A2: Final = Rule(
    id="A2",
    name="A program's elements are added to the same few addresses one by one",
    example="tl.atomic_add(y + i % 64, x)   # BLOCK elements\n->\n"
    "tl.atomic_add(y + tl.arange(0, 64), tl.sum(tl.reshape(x, (BLOCK // 64, 64)), 0))",
    level=Level.CODE,
    needs=_NEEDS,
    weight=58,
    detect=_same_addresses,
    explain=lambda facts, hit: (
        "Atomics to one address are done one after the other in L2, whichever thread they come from; within a program "
        "a sum takes registers and shuffles only."
    ),
    rewrite=_reduced_first,
    predicts=lambda facts, hit: [
        Prediction(fact="launch.atomics", now=facts.launch.atomics if facts.launch else None, expected="falls")
    ],
    falsified_by="The profile has few samples on the line: there are too few atomics to queue up.",
    risks=("sums in another order round differently",),
    explains_here=frozenset({"A5"}),
    explains=_LATE,
)
A5: Final = Rule(
    id="A5",
    name="Integers are added one by one",
    example="counts = torch.zeros(n, dtype=torch.int32)\ntl.atomic_add(counts + i, c)\n->\n"
    "counts = torch.zeros(n, dtype=torch.float32)   # exact below 2**24\ntl.atomic_add(counts + i, c.to(tl.float32))",
    level=Level.CODE,
    needs=_NEEDS,
    weight=46,
    detect=_integers,
    explain=lambda facts, hit: (
        "sm_90 adds 4 floats by one atomic (.v4.f32), but has no vector form for integers: each element is an atomic."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Add up more in the program before the atomic; or accumulate in an fp32 buffer and convert it once.",
        applies_if="all sums stay below 2**24, up to which fp32 holds whole numbers exactly",
        no_diff="the buffer is made outside the kernel",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="launch.atomics", now=facts.launch.atomics if facts.launch else None, expected="falls")
    ],
    falsified_by="The atomics are too few to matter: the profile has no samples on the line.",
    risks=("sums of 2**24 and more are rounded",),
    explains=_LATE,
)
A6: Final = Rule(
    id="A6",
    name="K is split although whole products fill the GPU",
    example="grid = (tiles, 4)\ntl.atomic_add(c, total)\n->\ngrid = (tiles,)   # K whole\ntl.store(c, total)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=56,
    detect=_split_needlessly,
    explain=lambda facts, hit: (
        "Split-K pays where there are fewer tiles than SMs. Here each part reads and writes the output once more, in "
        "fp32 and by atomics, and it has to be set to zero first."
    ),
    rewrite=advice(
        "Drop the split: one program for each tile, the loop over all of K, and a store. Where tiles are long and "
        "unevenly many, use a persistent kernel (stream-K); where a split is needed, store the parts and add them in "
        "a second launch.",
        "grid, loop and store have to change together",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="launch.atomics", now=facts.launch.atomics if facts.launch else None, expected="becomes", to=0)
    ],
    falsified_by="Without the split the launch takes longer: the last wave of tiles leaves more of the GPU idle.",
    risks=("none: results no longer depend on the order of atomics",),
    explains_here=frozenset({"A1"}),
    relieves="bytes",
)
A7: Final = Rule(
    id="A7",
    name="A barrier of your own in a loop",
    example="for k in range(0, n, BLOCK):\n    acc += tl.load(x + k + i)\n    tl.debug_barrier()\n->\n"
    "for k in range(0, n, BLOCK):\n    acc += tl.load(x + k + i)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=57,
    detect=_barriers,
    explain=lambda facts, hit: "All warps of the block wait for the slowest one in each step, and no load passes it.",
    rewrite=_without_barrier,
    predicts=lambda facts, hit: [
        Prediction(fact="ptx.barrier.in_loops", now=facts.count("barrier", in_loop=True), expected="falls")
    ],
    falsified_by="The profile shows no waiting at barriers (stall `barrier`).",
    risks=("a race, where threads of a program do share data through global memory",),
)

RULES: Final = (A1, A2, A7, A6, A4, A3, A5)
