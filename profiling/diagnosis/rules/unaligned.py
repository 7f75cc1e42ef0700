"""V13: accesses that are narrow although no argument of the launch is to blame."""

from typing import Final

from ..facts import Facts
from ..model import Level, Rewrite
from ..narrow import Narrow, evidence, narrow_accesses, needed_elements, wider
from ..rule import Hit, Rule
from ..source.alignment import NOT_OF_ARGUMENTS, OF_MASK, Obstacle


def _other(facts: Facts) -> list[Hit]:
    """Narrow, and the compiler says so, but no argument that we can read is the reason."""
    found = narrow_accesses(facts)
    stuck = {id(one) for one in found if any(each.reason in NOT_OF_ARGUMENTS for each in one.obstacles)}
    explained = {one.access.line for one in found if one.obstacles and id(one) not in stuck}
    return [
        Hit(tuple(evidence(facts, one, *one.obstacles)), one.access.line)
        for one in found
        if one.access.line not in explained
        and one.access.kind == "load"
        and facts.said("narrow-access", one.access.line)
    ][:1]


def _in_the_way(facts: Facts, hit: Hit) -> tuple[Narrow, list[Obstacle]] | None:
    """The access of a line, with what no argument is to blame for: of the mask alone, if the address is fine."""
    for one in narrow_accesses(facts):
        if one.access.line == hit.line and one.obstacles:
            return one, [each for each in one.obstacles if each.reason in NOT_OF_ARGUMENTS]
    return None


def _explain_other(facts: Facts, hit: Hit) -> str:
    found = _in_the_way(facts, hit)
    if found is None:
        return (
            "The lowering of the load found no contiguity or divisibility; which part of the address lacks it can't be "
            "told from the source."
        )
    names = " and ".join(dict.fromkeys(f"`{each.text}`" for each in found[1]))
    if all(each.reason in OF_MASK for each in found[0].obstacles):
        return (
            f"The address is fine. The lowering of the load takes the mask into account, and {names} is not known to "
            "be the same for neighbours: each element is moved by itself."
        )
    return f"AxisInfo knows nothing of values that come from memory or can't be followed, and the load needs {names}."


def _rewrite_other(facts: Facts, hit: Hit) -> Rewrite:
    found = _in_the_way(facts, hit)
    recipes: list[str] = []
    if found is not None:
        needed = needed_elements(facts, hit.line)
        for each in found[1]:
            match each.reason:
                case "mask":
                    recipe = (
                        "Mask by the tensor's end only, and select what was loaded by tl.where: the sectors are read "
                        "in any case."
                    )
                case "bound":
                    recipe = "Give blocks that lie wholly inside a path without a mask."
                case _:
                    recipe = (
                        f"If `{each.text}` is always a multiple of {needed}, say so where it is computed "
                        f"(`tl.multiple_of(…, {needed})`); if not, pad what it points into."
                    )
            recipes.append(recipe)
    return Rewrite(
        recipe=" ".join(dict.fromkeys(recipes))
        or "Write the address as a sum of an aligned base and tl.arange, with constants or aligned arguments as "
        "factors.",
        no_diff="what the values are is not known" if recipes else "the cause is not known",
    )


V13: Final = Rule(
    id="V13",
    name="Loads narrower than they could be",
    example="tl.load(x + f(i))\n->\ntl.load(x + base + tl.arange(0, BLOCK))",
    level=Level.COMPILER,
    needs=frozenset({"source", "code", "lines", "remarks"}),
    weight=50,
    detect=_other,
    explain=_explain_other,
    rewrite=_rewrite_other,
    predicts=lambda facts, hit: wider(facts, hit.line),
    falsified_by="After the edit the load is no wider, or it is wider and the launch takes as long: then it waits for "
    "something else.",
    explains=frozenset({"M3", "R3"}),
)
