"""What became of a campaign's kernels, for a reader."""

from collections.abc import Sequence
from typing import Final

from ..optimize.model import NONE, TUNE
from .folder import Frozen
from .model import KernelRecord
from .reasons import without_paths
from .report_compared import About, compared
from .report_kernels import failures, kernels, unseen
from .report_numbers import Numbers, no_rate
from .report_summary import BucketCount, Summary, summary
from .report_text import code, mean, number, prose, rate, section, span, table
from .statistics import FEWEST, Share

__all__ = ["About", "compared", "report", "summary"]

AGENT_CHARACTERS: Final = 200

METHOD: Final = """\
- **Runnable**: the baseline was timed. **Success**: at least 1.05 times as fast as the baseline, which is the original
  file, unchanged. What a winner shows when it is measured once more at the end counts, not what it showed when it was
  chosen.
- **Rates** are of the runnable ones, and of all artefacts. Kernels whose candidates nothing could judge, and
  those with which the campaign could not go on, count as no success. Their 95 % intervals are Wilson's.
- **On the device alone**: some candidate that was right on the visible cases took the device 1.05 times less, whether
  it was accepted or not. That is what benchmarks of kernel time count. It is the weaker standard: a run also looks a
  second time, on hidden cases, and refuses what loses in one case, or does not reach a caller who waits for the host.
- **Mean and median** speed-up are those of the successes alone, so they tell nothing of how often there was one. The
  **geometric mean** is that of all whose speed-up is known; where the baseline stays it is 1. Its 95 % interval is a
  bootstrap over the kernels (2,000 draws with a fixed seed, percentiles moved outwards as far as Student's t is wider
  than the normal distribution). It tells what other kernels of the same sort may give, not how well each one was timed.
  Fewer than six kernels have none.
- **Length**: lines of the kernel part, without blank lines and comments. A group ends at a quartile over all artefacts;
  kernels of the same length are in the same group, so groups may differ in size.
- **Rounds**: candidates submitted for a kernel, over the kernels that an agent worked on.
- What was not measured is blank."""


def report(records: Sequence[KernelRecord], about: Frozen) -> str:
    """A campaign in Markdown.

    Args:
        records: one for each artefact that the campaign is through with; names are unique.
        about: what the campaign was begun with.
    """
    found = summary(records)
    parts = [
        f"# {_counted(len(records), 'kernel')} of {prose(about.plan.folder.name)}, and what became of them",
        "\n".join(_facts(about, found)),
        _left(records, about),
        _headline(found.all),
        _numbers(found),
        _by_length(found),
        _speedups(found),
        _times(found),
        _candidates(found),
        unseen(found),
        failures(found, records),
        kernels(records),
        section("How it was counted", METHOD),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _facts(about: Frozen, found: Summary) -> list[str]:
    """What the results depend on. Of the folder only its name: reports are passed on."""
    plan = about.plan
    agent, gpus = (
        without_paths(" ".join([plan.agent, *plan.agent_words])),
        ", ".join(map(prose, found.gpus)) or "none was used",
    )
    allowed = f"{plan.wall_s:g} s for a kernel"
    if plan.agent != NONE:
        allowed += (
            f", {plan.search_s:g} s for a search" if plan.agent == TUNE else f", {_counted(plan.rounds, 'round')}"
        )
    chosen = f"{plan.subset} chosen at random, seed {plan.seed}" if plan.subset is not None else "all of the folder"
    chosen = f"{_counted(len(plan.only), 'name')} of it" if plan.only else chosen
    return [
        f"- agent: {code(agent, AGENT_CHARACTERS)}; {allowed}",
        f"- without: {', '.join(sorted(plan.ablations)) or 'nothing, all tools are given'}",
        f"- artefacts: {len(about.entries)}, {chosen}",
        f"- GPU: {gpus}; {_counted(plan.at_once, 'kernel')} at a time on each",
        f"- begun {prose(about.begun_at[:16].replace('T', ' '))} UTC, tritonforge-mcp {prose(about.version)}",
    ]


def _left(records: Sequence[KernelRecord], about: Frozen) -> str:
    through = {record.name for record in records}
    left = sum(entry.name not in through for entry in about.entries)
    return f"**Not finished: {left} of {len(about.entries)} artefacts are left, and are not in what follows.**" * (
        left > 0
    )


def _headline(found: Numbers) -> str:
    of_runnable = found.success_of_runnable
    if of_runnable is None:
        return f"No success rate: {no_rate(found)}. {found.runnable} of {found.artefacts} baselines were timed."
    mean_of_all = f" Geometric mean over all of known speed-up: {mean(found.geometric_mean)}." * bool(
        found.geometric_mean
    )
    return (
        f"**{of_runnable.count} of {of_runnable.of} runnable kernels became at least 1.05 times as fast: "
        f"{rate(of_runnable)} %**; {found.successes} of all {found.artefacts} artefacts.{mean_of_all}"
    )


def _numbers(summarized: Summary) -> str:
    found, gained = summarized.all, summarized.outcomes.get("gained", 0)
    of_runnable, of_all, center = found.success_of_runnable, found.success_of_all, found.geometric_mean
    none = "there is no success" if found.artefacts else "there are no artefacts"
    rows = [
        ("artefacts", str(found.artefacts), "", ""),
        ("loaded as tasks", str(found.loaded), "", ""),
        ("runnable", str(found.runnable), "", "baselines that were timed"),
        *([("undecided", str(found.undecided), "", "no agent, or no GPU to time with")] if found.undecided else []),
        ("successes", str(found.successes), "", f"{found.certain} with their whole interval at 1.05 or above"),
        ("success rate, % of runnable", *_share(of_runnable, no_rate(found))),
        ("success rate, % of all artefacts", *_share(of_all, no_rate(found))),
        ("1.05 times as fast on the device alone, % of runnable", *_share(found.device_successes, no_rate(found))),
        ("mean speed-up of successes", number(found.mean_speedup), "", none if found.mean_speedup is None else ""),
        (
            "median speed-up of successes",
            number(found.median_speedup),
            "",
            none if found.median_speedup is None else "",
        ),
        (
            "geometric mean speed-up of all",
            "" if center is None else number(center.value),
            "" if center is None else span(center.low, center.high),
            _of_mean(found),
        ),
        (
            "rounds, mean; median",
            "" if found.rounds_mean is None else f"{number(found.rounds_mean, 1)}; {number(found.rounds_median, 1)}",
            "",
            f"of {found.tried} kernels" if found.tried else "no agent submitted anything",
        ),
        ("winners", str(gained), "", "of any gain"),
        ("winners measured once more", str(summarized.verified), "", "at the end, with fresh inputs"),
        ("winners compared in hidden cases", str(summarized.hidden_checked), "", ""),
    ]
    return section("In numbers", table(("what", "value", "95 % interval", "remark"), rows))


def _share(found: Share | None, absent: str) -> tuple[str, str, str]:
    if found is None:
        return "", "", absent
    return number(found.pct, 1), span(found.low_pct, found.high_pct, 1), f"{found.count} of {found.of}"


def _of_mean(found: Numbers) -> str:
    if found.geometric_mean is None:
        return "no speed-up is known"
    of = f"of {_counted(found.geometric_mean.n, 'kernel')}"
    of += f"; fewer than {FEWEST} have no interval" if found.geometric_mean.low is None else ""
    return of + (f"; {found.speedup_unknown} more ran, their speed-up is not known" if found.speedup_unknown else "")


def _by_length(found: Summary) -> str:
    groups = [(group.quantile, group.lines_low, group.lines_high, group.numbers) for group in found.by_length]
    rows = [
        (quantile, "" if low is None or high is None else f"{low} to {high}", *_group(numbers))
        for quantile, low, high, numbers in [*groups, ("all", None, None, found.all)]
    ]
    head = (
        "length quantile", "lines", "artefacts", "loaded", "runnable", "successes", "success rate of runnable, %",
        "of all, %", "mean speed-up of successes", "median", "geometric mean of all", "rounds, mean", "median",
    )  # fmt: skip
    return section("By length", table(head, rows))


def _group(found: Numbers) -> tuple[str, ...]:
    return (
        str(found.artefacts),
        str(found.loaded),
        str(found.runnable),
        str(found.successes),
        rate(found.success_of_runnable),
        rate(found.success_of_all),
        number(found.mean_speedup),
        number(found.median_speedup),
        mean(found.geometric_mean),
        number(found.rounds_mean, 1),
        number(found.rounds_median, 1),
    )


def _speedups(found: Summary) -> str:
    total = sum(each.kernels for each in found.speedups)
    if not total:
        return section("Speed-ups", "No speed-up is known.")
    rows = [
        (_bucket(each), str(each.kernels), str(each.unchanged or ""), number(100 * each.kernels / total, 1))
        for each in found.speedups
    ]
    return section("Speed-ups", table(("speed-up", "kernels", "of them, the baseline stays", f"% of {total}"), rows))


def _bucket(each: BucketCount) -> str:
    if each.low is None:
        return f"below {each.high:g}"
    if each.high is None:
        return f"{each.low:g} and more"
    return f"{each.low:g} to below {each.high:g}" + (", near the baseline" if each.low == 1 else "")


def _times(found: Summary) -> str:
    rows = [
        (code(each.stage), str(each.kernels), *(number(s, 1) for s in (each.median_s, each.most_s, each.total_s)))
        for each in found.stages
    ]
    head = ("stage", "kernels", "median, s", "most, s", "all together, s")
    return section("Time", table(head, rows) if rows else "No times were kept.")


def _candidates(found: Summary) -> str:
    total = sum(found.candidates.values())
    rows = [(code(kind), str(count), number(100 * count / total, 1)) for kind, count in found.candidates.items()]
    return section(
        "Candidates", table(("ended as", "candidates", f"% of {total}"), rows) if rows else "None was submitted."
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
