"""Several campaigns over the same kernels side by side, such as those in which an agent was not given everything."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from .model import KernelRecord
from .report_numbers import Numbers, no_rate, numbers
from .report_text import code, mean, number, prose, rate, section, span, table
from .statistics import FEWEST, geometric_mean, paired

DAMAGED_SHOWN: Final = 8


class About(NamedTuple):
    """What a campaign's records do not tell."""

    folder: Path
    """Of its artefacts."""
    left: int
    """Artefacts that it is not through with, those of damaged records too."""
    damaged: Sequence[str]
    """Kernels whose records can't be read."""


def compared(reports: Mapping[str, Sequence[KernelRecord]], about: Mapping[str, About] | None = None) -> str:
    """Campaigns side by side in Markdown; the first is what the others are compared with.

    Args:
        reports: records by name of the campaign, of which the kernels' names are unique within each.
        about: what else is known, by name of the campaign.
    """
    found = {name: numbers(records) for name, records in reports.items()}
    head = (
        "campaign", "artefacts", "runnable", "successes", "success rate of runnable, %", "of all, %",
        "mean speed-up of successes", "geometric mean of all", "rounds, mean", "remark",
    )  # fmt: skip
    rows = [_row(name, each) for name, each in found.items()]
    return (
        "\n\n".join(
            [
                "# Campaigns side by side",
                table(head, rows) if rows else "There are none.",
                *filter(None, [_missing(about or {}), _folders(about or {})]),
                *([_paired(reports)] if len(reports) > 1 else []),
            ]
        )
        + "\n"
    )


def _row(name: str, found: Numbers) -> tuple[str, ...]:
    return (
        code(name),
        str(found.artefacts),
        str(found.runnable),
        str(found.successes),
        rate(found.success_of_runnable),
        rate(found.success_of_all),
        number(found.mean_speedup),
        mean(found.geometric_mean),
        number(found.rounds_mean, 1),
        "" if found.success_of_runnable is not None else f"no rate: {no_rate(found)}",
    )


def _missing(about: Mapping[str, About]) -> str:
    """What the figures leave out."""
    lines: list[str] = []
    for name, each in about.items():
        if each.left:
            said = f"- {code(name)} is not through with {each.left} of its artefacts, which are in no figure"
            if each.damaged:
                shown = ", ".join(code(kernel) for kernel in each.damaged[:DAMAGED_SHOWN])
                more = " and more" if len(each.damaged) > DAMAGED_SHOWN else ""
                said += f"; of {len(each.damaged)} the record is there and can't be read: {shown}{more}"
            lines.append(said)
    return "\n".join(lines)


def _folders(about: Mapping[str, About]) -> str:
    folders = list(dict.fromkeys(each.folder for each in about.values()))
    if len(folders) < 2:
        return ""
    if len({folder.name for folder in folders}) < len(folders):
        where = "some of which have the same name"
    else:
        where = "; ".join(f"{code(name)}: {prose(each.folder.name)}" for name, each in about.items())
    return (
        f"**Not of the same folder**: they were begun over {len(folders)} folders ({where}). Kernels of the same name "
        "need not be the same kernels."
    )


def _paired(reports: Mapping[str, Sequence[KernelRecord]]) -> str:
    """Each campaign against the first on the kernels whose speed-up all of them know."""
    of = {name: {record.name: record for record in records} for name, records in reports.items()}
    first, *_ = of
    common = [name for name in of[first] if all(_known(each.get(name)) for each in of.values())]
    if not common:
        return section("On the same kernels", "There is no kernel whose speed-up is known in all of them.")
    ratios = {name: [each[kernel].speedup or 1.0 for kernel in common] for name, each in of.items()}
    head = (
        "campaign", "geometric mean", "95 % interval", f"times that of {code(first)}", "95 % interval",
        "kernels that gain more", "the same", "less",
    )  # fmt: skip
    few = len(common) < FEWEST
    intervals = f"fewer than {FEWEST} have no interval" if few else "intervals are bootstraps over the kernels"
    return section(
        "On the same kernels",
        f"Kernels whose speed-up is known in all of them: {len(common)}. Each is compared with itself: below 1, "
        f"kernels gain less than in {code(first)}; {intervals}.",
        table(head, [_against(name, each, None if name == first else ratios[first]) for name, each in ratios.items()]),
        _unlike([[each[kernel] for each in of.values()] for kernel in common]),
    )


def _known(record: KernelRecord | None) -> bool:
    return record is not None and record.speedup is not None


def _against(name: str, ratios: Sequence[float], reference: Sequence[float] | None) -> tuple[str, ...]:
    own = geometric_mean(ratios)
    start = (code(name), *(("", "") if own is None else (number(own.value), span(own.low, own.high))))
    if reference is None:
        return (*start, "", "", "", "", "")
    beside = paired(ratios, reference)
    more = sum(one > other for one, other in zip(ratios, reference, strict=True))
    same = sum(one == other for one, other in zip(ratios, reference, strict=True))
    return (
        *start,
        *(("", "") if beside is None else (number(beside.value), span(beside.low, beside.high))),
        str(more),
        str(same),
        str(len(ratios) - more - same),
    )


def _unlike(kernels: Sequence[Sequence[KernelRecord]]) -> str:
    """What makes kernels of the same name hard to compare."""
    devices = sum(len({record.gpu for record in each}) > 1 for each in kernels)
    cases = sum(len({tuple(case.case for case in record.baseline) for record in each}) > 1 for each in kernels)
    said = [f"{devices} of them were measured on GPUs of different names"] if devices else []
    said += [f"{cases} were timed in different cases"] if cases else []
    return f"Not alike: {'; '.join(said)}." if said else ""
