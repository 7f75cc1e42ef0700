"""H: what the Python around a launch does. Only the source is looked at: hypotheses, to be checked by timing."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from ..edits import diff, replaced
from ..facts import Facts, Need
from ..gains import in_one_launch
from ..model import Level, Rewrite
from ..rule import Hit, Rule, seen
from ..source.host import Launch, Output, is_cast, is_name, launches, outputs, shown, values
from ..source.syntax import HostFunction, calls, dotted, keyword, launched

_SOURCE: Final[frozenset[Need]] = frozenset({"source"})
_TURNS: Final = frozenset({"transpose", "permute", "t", "swapaxes", "swapdims", "movedim", "T", "mT", "H", "narrow"})
"""Methods and attributes whose result is mostly not contiguous."""
_WAITS: Final = frozenset({"item", "tolist", "cpu", "synchronize", "numpy"})
_FILLS: Final = frozenset({"zeros", "zeros_like", "new_zeros"})
_FROM_HOST: Final = frozenset({"torch.tensor", "torch.as_tensor"})
_ELEMENTWISE: Final = frozenset(
    {"relu", "sigmoid", "silu", "gelu", "tanh", "exp", "log", "sqrt", "rsqrt", "mul", "add", "sub", "div", "clamp"}
)
_REDUCING: Final = ("dot", "dot_scaled", "sum", "max", "min", "argmax", "argmin", "reduce", "cumsum", "sort")


def _launches(facts: Facts) -> Iterator[Launch]:
    if facts.file is not None:
        yield from launches(facts.file, facts.captured.kernel)


def _told(facts: Facts, node: ast.expr | ast.stmt, does: str, *subject: str) -> Hit:
    text = f"`{shown(facts.file, node) if facts.file is not None else ''}` {does}"
    return Hit((seen(Level.SOURCE, text, node.lineno),), node.lineno, subject)


def _beside(facts: Facts, hits: list[Hit]) -> list[Hit]:
    """The same with what a profile says of launches of torch's own: how much they take, or that there are none."""
    call = facts.call
    if call is None or not call.us or not hits:
        return hits
    if not call.others_us:
        return [] if call.complete else hits
    share = 100 * call.others_us / call.us
    text = f"torch's own launches take {share:.0f} % of the call's time on the GPU ({', '.join(call.others[:3])})"
    told = seen(Level.PROFILE, text, None, "call.others_pct", round(share, 1))
    why = "of the call's time on the GPU: what torch's own launches take"
    return [
        replace(hit, evidence=(*hit.evidence, told), bound_pct=share, bound_why=why, expected_pct=share) for hit in hits
    ]


def _methods(launch: Launch, names: frozenset[str]) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Calls of methods whenever the kernel is launched, each with what it is called of."""
    for call in launch.function.calls:
        match call.func:
            case ast.Attribute(value=on, attr=name) if name in names and launch.function.always_with(call, launch.call):
                yield call, on
            case _:
                pass


def _copied(facts: Facts) -> list[Hit]:
    for launch in _launches(facts):
        for call, on in _methods(launch, frozenset({"contiguous", "clone"})):
            if call.lineno <= (launch.call.end_lineno or launch.call.lineno) and _copies(facts, launch, call, on):
                return _beside(facts, [_told(facts, call, "may copy a tensor in each call")])
    return []


def _copies(facts: Facts, launch: Launch, call: ast.Call, on: ast.expr) -> bool:
    """Whether something is known to be copied: `.contiguous()` of a contiguous tensor is free."""
    name = on.id if isinstance(on, ast.Name) else ""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "clone":
        return name in launch.function.parameters
    if facts.call is not None and any("copy" in each.lower() for each in facts.call.others):
        return True
    return any(_is_turned(each) for each in [on, *launch.function.assigned(name)] if each.lineno <= call.lineno)


def _is_turned(node: ast.expr) -> bool:
    """Whether it is a view whose elements mostly do not lie side by side."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Attribute(attr=name):
            return name in _TURNS
        case ast.Subscript(slice=ast.Tuple(elts=[first, *inner])):
            rows = isinstance(first, ast.Slice) or (isinstance(first, ast.Constant) and first.value is ...)
            return rows and not all(_is_whole(each) for each in inner)
        case _:
            return False


def _is_whole(place: ast.expr) -> bool:
    """Whether it is `:`."""
    return isinstance(place, ast.Slice) and not (place.lower or place.upper or place.step)


def _waited(facts: Facts) -> list[Hit]:
    found = (call for launch in _launches(facts) for call, _ in _methods(launch, _WAITS))
    return [_told(facts, call, "waits for the GPU") for call in found][:1]


def _repeated(facts: Facts) -> list[Hit]:
    for launch in _launches(facts):
        for loop in launch.function.nodes:
            if not isinstance(loop, ast.For | ast.While) or _in_chunks(loop):
                continue
            if loop.lineno <= launch.call.lineno <= (loop.end_lineno or loop.lineno):
                hit = _told(facts, loop, "launches the kernel again and again")
                return _counted(facts, _together(facts, hit) if _of_slices(loop, launch) else hit)
    return []


def _of_slices(loop: ast.For | ast.While, launch: Launch) -> bool:
    """Whether each launch has a part of a tensor of its own, by the loop's variable."""
    target = loop.target.id if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) else None
    inside = (each for given in launch.given.values() for each in ast.walk(given) if isinstance(each, ast.Subscript))
    names = {each.id for part in inside for each in ast.walk(part.slice) if isinstance(each, ast.Name)}
    return target in names


def _together(facts: Facts, hit: Hit) -> Hit:
    merged = in_one_launch(facts)
    return hit if merged is None else replace(hit, expected_pct=100 * (1 - merged.share), bound_why=merged.why)


def _counted(facts: Facts, hit: Hit) -> list[Hit]:
    """With the number of launches, where the compiled call or a profile tells it."""
    call, count = facts.call, facts.captured.count
    if call is None:
        if count < 2:
            return [hit]
        told = seen(Level.CODE, f"the entry makes this launch {count} times in a call", None, "count", count)
        return [replace(hit, evidence=(*hit.evidence, told))]
    if call.complete and call.launches == 1:
        return []
    text = (
        f"{'' if call.complete else 'at least '}{call.launches} launches of {call.us / call.launches:.1f} us in a call"
    )
    return [replace(hit, evidence=(*hit.evidence, seen(Level.PROFILE, text, None, "call.launches", call.launches)))]


def _in_chunks(loop: ast.For | ast.While) -> bool:
    """Whether it counts in steps, as where a grid would be too large: its launches are large ones."""
    over = loop.iter if isinstance(loop, ast.For) else None
    return isinstance(over, ast.Call) and is_name(over.func, "range") and len(over.args) == 3


def _cast_before(facts: Facts) -> list[Hit]:
    for launch in _launches(facts):
        for parameter, node in launch.given.items():
            if not facts.captured.signature.get(parameter, "").startswith("*"):
                continue
            name = node.id if isinstance(node, ast.Name) else ""
            found = next((each for each in [node, *launch.function.assigned(name)] if _is_plain_cast(each)), None)
            if found is not None and found.lineno <= launch.call.lineno:
                return _beside(facts, [_told(facts, found, "writes the tensor again before the launch")])
    return []


def _is_plain_cast(node: ast.expr) -> bool:
    """Whether it converts a tensor that is not computed on the way."""
    on = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    return is_cast(node) and on is not None and dotted(on) != ""


def _cleared(facts: Facts) -> list[Hit]:
    return _beside(
        facts, [_told(facts, call, "fills what the kernel stores to", name) for name, call in _fills(facts)][:1]
    )


def _fills(facts: Facts) -> Iterator[tuple[str, ast.Call]]:
    """Fills of tensors that the kernel only stores to, whatever the run decides."""
    accesses = facts.source.accesses if facts.source is not None else []
    other = {access.pointer for access in accesses if access.kind != "store" or access.place.branches}
    stored = {access.pointer for access in accesses} - other
    if None in other:
        return
    for launch in _launches(facts):
        for parameter, name in launch.variables().items():
            call = launch.meant(launch.given[parameter])
            if not isinstance(call, ast.Call) or dotted(call.func).rpartition(".")[2] not in _FILLS:
                continue
            if parameter in stored and _launched_with(facts, launch.function, name) == 1 and not _calls_helpers(facts):
                yield name, call


def _calls_helpers(facts: Facts) -> bool:
    """Whether the kernel calls other kernels of the file, whose accesses are not known."""
    kernels = facts.file.kernels if facts.file is not None else {}
    node = facts.source.function.node if facts.source is not None else None
    return node is not None and any(isinstance(c.func, ast.Name) and c.func.id in kernels for c in calls(node))


def _launched_with(facts: Facts, function: HostFunction, name: str) -> int:
    """Launches of any kernel that a variable is handed to."""
    kernels = facts.file.kernels if facts.file is not None else {}
    return sum(
        any(isinstance(each, ast.Name) and each.id == name for value in values(call) for each in ast.walk(value))
        for call in function.calls
        if launched(call) in kernels
    )


def _not_cleared(facts: Facts, hit: Hit) -> Rewrite:
    edit = None
    call = next((call for name, call in _fills(facts) if name in hit.subject), None)
    made = dotted(call.func) if call is not None else ""
    if call is not None and facts.file is not None and not made.startswith("."):
        edit = diff(facts.file, [replaced(call.func, made.replace("zeros", "empty"))])
    return Rewrite(
        recipe="Allocate with torch.empty.",
        applies_if=f"the programs together store every element of `{(hit.subject or ('it',))[0]}`",
        diff=edit,
        no_diff=None if edit else "the call that fills is not written as torch.zeros",
    )


def _outputs(facts: Facts) -> Iterator[Output]:
    if facts.file is not None and facts.source is not None:
        yield from outputs(facts.file, facts.source)


def _processed(facts: Facts) -> list[Hit]:
    for launch, _, name in _outputs(facts):
        for node in launch.function.nodes:
            if not isinstance(node, ast.BinOp | ast.AugAssign | ast.Call) or node.lineno <= launch.call.lineno:
                continue
            if _works_on(node, name) and not _changed_between(launch, node.lineno, name):
                return _beside(facts, [_told(facts, node, f"reads and writes `{name}` once more", name)])
    return []


def _changed_between(launch: Launch, line: int, name: str) -> bool:
    """Whether something else gets the variable first, such as another kernel or a sum over GPUs."""
    between = [call for call in launch.function.calls if launch.call.lineno < call.lineno < line]
    return any(is_name(each, name) for call in between for each in values(call))


def _works_on(node: ast.BinOp | ast.AugAssign | ast.Call, name: str) -> bool:
    """Whether it is arithmetic on each element of a variable."""
    match node:
        case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
            return is_name(left, name) or is_name(right, name)
        case ast.AugAssign(target=target):
            return is_name(target, name)
        case ast.Call(func=ast.Attribute(value=on, attr=method), args=args):
            by_torch = dotted(on) in ("torch", "F", "torch.nn.functional") and any(is_name(each, name) for each in args)
            return method.rstrip("_") in _ELEMENTWISE and (is_name(on, name) or by_torch)
        case _:
            return False


def _sent(facts: Facts) -> list[Hit]:
    for launch in _launches(facts):
        for call in launch.function.calls:
            if _is_sent(call) and launch.function.always_with(call, launch.call):
                return [_told(facts, call, "copies from the host in each call")]
    return []


def _is_sent(call: ast.Call) -> bool:
    """Whether it makes a tensor of the GPU from values of the host."""
    to = keyword(call, "device")
    on_host = to is None or (isinstance(to, ast.Constant) and str(to.value).startswith(("cpu", "None")))
    return dotted(call.func) in _FROM_HOST and not on_host


def _handed_on(facts: Facts) -> list[Hit]:
    if facts.source is None or facts.source.loops or facts.source.named(*_REDUCING) or facts.file is None:
        return []
    if any(access.kind == "atomic" for access in facts.source.accesses):
        return []
    for launch, _, name in _outputs(facts):
        returned = {
            each.id
            for node in launch.function.nodes
            if isinstance(node, ast.Return) and node.value is not None
            for each in ast.walk(node.value)
            if isinstance(each, ast.Name)
        }
        others = facts.file.kernels.keys() - {facts.captured.kernel}
        for call in launch.function.calls:
            taken = call.lineno > launch.call.lineno and launched(call) in others
            if not taken or name in returned or not any(is_name(each, name) for each in values(call)):
                continue
            if not _calls_helpers(facts):
                return [_told(facts, call, f"is all that reads `{name}`", name)]
    return []


def _rule(
    id: str,
    name: str,
    weight: int,
    detect: Callable[[Facts], list[Hit]],
    cause: str,
    recipe: str,
    example: str,
    wrong: str,
    *risks: str,
) -> Rule:
    return Rule(
        id=id,
        name=name,
        level=Level.SOURCE,
        needs=_SOURCE,
        weight=weight,
        detect=detect,
        explain=lambda facts, hit: cause,
        rewrite=lambda facts, hit: Rewrite(recipe=recipe, no_diff="whether it is needed can't be told from the source"),
        predicts=lambda facts, hit: [],
        falsified_by=wrong,
        example=example,
        risks=risks,
        relieves="call",
    )


H1: Final = _rule(
    "H1", "A tensor may be copied before each launch", 68, _copied,
    "A copy reads and writes every byte once more, and is a launch of its own; of a contiguous tensor "
    ".contiguous() is free.",
    "Pass strides to the kernel, or make the layout once outside of the call.",
    "kernel[grid](x.contiguous(), ...)\n->\nkernel[grid](x, x.stride(0), x.stride(1), ...)",
    "The profile or the timeline shows no copy beside the kernel: the tensor was contiguous.",
    "a kernel that assumes a layout reads the wrong elements without the copy",
)  # fmt: skip
H2: Final = _rule(
    "H2", "The host waits for the GPU in each call", 36, _waited,
    "The CPU can't queue the next launch while it waits, so the GPU idles between launches.",
    "Keep values on the GPU; hand them to the kernel as tensors.",
    "kernel[grid](x, scale.item())\n->\nkernel[grid](x, scale)   # tl.load(scale_ptr)",
    "Wall time per call equals the kernel's own time.",
)  # fmt: skip
H3: Final = _rule(
    "H3", "Many small launches in a loop of Python", 69, _repeated,
    "Each launch costs some microseconds of the CPU, whatever it does.",
    "Make the loop an axis of the grid, or record it in a CUDA graph.",
    "for b in range(B):\n    kernel[grid](x[b])\n->\nkernel[(*grid, B)](x, x.stride(0))",
    "Each launch takes far longer than 10 us: then the CPU is ahead.",
)  # fmt: skip
H4: Final = _rule(
    "H4", "A tensor is converted before each launch", 68, _cast_before,
    "The conversion is a launch of its own that reads the tensor and writes it again.",
    "Hand the tensor over as it is, and convert in the kernel what it has loaded.",
    "kernel[grid](x.float(), ...)\n->\nkernel[grid](x, ...)   # tl.load(x_ptr + at).to(tl.float32)",
    "The timeline shows no kernel before this one: the tensor had that type.",
)  # fmt: skip
H5: Final = Rule(
    id="H5",
    name="The output is filled with zeros before the kernel stores to it",
    level=Level.SOURCE,
    needs=_SOURCE,
    weight=68,
    detect=_cleared,
    explain=lambda facts, hit: "The fill is a launch of its own that writes every byte of the output once more.",
    rewrite=_not_cleared,
    predicts=lambda facts, hit: [],
    falsified_by="Some elements are stored by no program: they have to be zero.",
    example="out = torch.zeros_like(x)\n->\nout = torch.empty_like(x)",
    risks=("elements that no program stores hold what was in memory before",),
    relieves="call",
)
H6: Final = _rule(
    "H6", "The kernel's output goes through another operation of torch", 68, _processed,
    "The operation is a launch of its own that reads what the kernel has just written, and writes it again.",
    "Do it in the kernel, on the value before it is stored.",
    "kernel[grid](x, out)\nreturn out * scale\n->\nkernel[grid](x, out, scale)   # tl.store(out_ptr + at, y * scale)",
    "The timeline shows no kernel behind this one.",
    "the value in the kernel may have more bits than the stored one",
)  # fmt: skip
H7: Final = _rule(
    "H7", "Data is copied from the host in each call", 34, _sent,
    "A tensor made of Python's or NumPy's values goes to the GPU by a copy from pageable memory, which the CPU waits "
    "for.",
    "Make the tensor once outside of the call, or hand numbers to the kernel as arguments.",
    "limits = torch.tensor([lo, hi], device=x.device)\nkernel[grid](x, limits)\n->\nkernel[grid](x, lo, hi)",
    "The timeline shows no copy from host to device in the call.",
)  # fmt: skip
H8: Final = _rule(
    "H8", "A result is written to memory only for the next kernel to read", 32, _handed_on,
    "The kernel works on each element alone, so the next one could do the same to what it loads: that saves a write, "
    "a read and a launch.",
    "Do this kernel's arithmetic in the next kernel, on the value that it loads.",
    "scaled[grid](x, t)\nsummed[grid](t, out)\n->\nscaled_and_summed[grid](x, out)",
    "The next kernel reads each element many times, so that the arithmetic would be done as often.",
)  # fmt: skip

RULES: Final = (replace(H3, explains=frozenset({"G4"})), H2, H4, H6, H5, H7, H1, H8)
