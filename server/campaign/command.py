"""The command `campaign`."""

import argparse
import gc
import os
import random
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

import anyio

from ...sandbox.errors import Stopped, rejected
from ..optimize.agents import AGENTS
from ..optimize.model import NONE, TUNE, Ablation, Says
from ..settings import Settings
from .campaign import Campaign, devices
from .entries import entries, passed_over
from .folder import CampaignFolder, Frozen, write
from .model import KernelRecord, Outcome, Plan
from .report import About, compared, report, summary
from .table import Live

OK: Final = 0
LEFT: Final = 1
MISUSE: Final = 2


def run_campaign(settings: Settings, given: argparse.Namespace, *, say: Says, tell: Says) -> int:
    """Run the command; returns the exit code: 0 every kernel is through, 1 some are left, 2 misuse.

    Args:
        settings: of this process.
        given: the arguments.
        say: takes results.
        tell: takes errors, and progress where only the result is wanted.
    """
    # Starting quickly has turned it off; this may take hours.
    gc.enable()
    try:
        if given.compare:
            say(_compared([Path(name) for name in given.compare], given))
            return OK
        if given.report_only:
            folder = CampaignFolder(_out(given))
            return _reported(folder, _frozen(folder), as_json=given.json, say=say)
        plan = plan_of(given)
        folder = CampaignFolder(_out(given))
        gpus = devices(given.gpus)
        _require_outcomes(given.again)
        found = entries(plan.folder, subset=plan.subset, seed=plan.seed, only=plan.only)
        # In no order: whatever is through at some time is a fair sample of all.
        random.Random(plan.seed).shuffle(found)
        frozen = folder.freeze(plan, found, resume=given.resume)
        _forget(folder, frozen, given.again)
        if (note := passed_over(plan.folder)) is not None:
            tell(note)
        if not gpus and not given.tasks_only:
            tell("there is no GPU here: results are compared in the interpreter, and nothing is timed")
        live = Live(
            folder.records(frozen),
            len(frozen.entries),
            max(1, len(gpus)) * plan.at_once,
            only_tasks=given.tasks_only,
            say=tell if given.json else say,
            terminal=sys.stderr if given.json else None,
        )
        sitting = Campaign(
            folder, frozen, settings.model_copy(update={"state_dir": folder.state}), live, only_tasks=given.tasks_only
        )
        with live:
            anyio.run(sitting.run, gpus)
    except Stopped as stopped:
        problem = stopped.problem
        tell(problem.message if problem.likely_fix is None else f"{problem.message}. {problem.likely_fix}")
        return MISUSE
    if sitting.interrupted is not None:
        tell(f"ended by {sitting.interrupted.name}; what is through is kept")
    for why in sitting.halted:
        tell(f"given up: {why}")
    if given.tasks_only:
        return _tasks_told(folder, frozen, say)
    return _reported(folder, frozen, as_json=given.json, say=say)


def plan_of(given: argparse.Namespace) -> Plan:
    """The arguments as a plan.

    Raises:
        Stopped: ``rejected``: an argument that can't be used.
    """
    if given.folder is None:
        raise rejected("campaign", "no FOLDER is named", fix="Name a folder of kernels, or --compare campaigns.")
    try:
        words = tuple(shlex.split(given.agent_args))
        command = shlex.split(given.agent)
    except ValueError as error:
        raise rejected(
            "agent", f"the agent's words can't be split: {error}", fix="Quote them as a shell does."
        ) from None
    if given.agent not in (NONE, TUNE) and (not command or shutil.which(command[0]) is None):
        allowed = ", ".join([TUNE, NONE, *AGENTS])
        raise rejected(
            "agent",
            f"there is no program {command[0] if command else given.agent!r}",
            fix=f"Give --agent as {allowed}, or as a command line whose first word is a program.",
        )
    wanted = {
        Ablation.NO_PROFILE: given.no_profile,
        Ablation.NO_DIAGNOSIS: given.no_diagnosis,
        Ablation.ONE_SHOT: given.one_shot,
    }
    return Plan(
        folder=_absolute(given.folder),
        agent=given.agent,
        agent_words=words,
        subset=given.subset,
        seed=given.seed,
        only=tuple(sorted(set(given.only))),
        ablations=frozenset(ablation for ablation, chosen in wanted.items() if chosen),
        rounds=1 if given.one_shot else given.rounds,
        search_s=given.search_s,
        wall_s=given.wall_s,
        at_once=given.at_once,
        performance=None if given.performance is None else _absolute(given.performance),
        unseen=not given.no_unseen,
    )


def _out(given: argparse.Namespace) -> Path:
    """The campaign's folder.

    Raises:
        Stopped: ``rejected``: nothing names it.
    """
    if given.out is None and given.folder is None:
        raise rejected("campaign", "neither --out nor FOLDER is given", fix="Name the campaign's folder: --out DIR.")
    return _absolute(given.out or f"campaign-{_absolute(given.folder).name}")


def _frozen(folder: CampaignFolder) -> Frozen:
    frozen = folder.frozen()
    if frozen is None:
        raise rejected("campaign", f"{folder.path} holds no campaign", fix="Name the folder that --out named.")
    return frozen


def _require_outcomes(again: Sequence[str]) -> None:
    """
    Raises:
        Stopped: ``rejected``: no kernel ends so.
    """
    known = get_args(Outcome)
    if unknown := [outcome for outcome in again if outcome not in known]:
        raise rejected("campaign", f"--again {unknown[0]} is no outcome", fix=f"Outcomes are {', '.join(known)}.")


def _forget(folder: CampaignFolder, frozen: Frozen, again: Sequence[str]) -> None:
    """Have kernels worked on again."""
    for entry in frozen.entries:
        before = folder.record(entry.name)
        if before is not None and before.outcome in again:
            folder.forget(entry.name)


def _reported(folder: CampaignFolder, frozen: Frozen, *, as_json: bool, say: Says) -> int:
    records = folder.records(frozen)
    found = summary(records)
    write(folder.path / "report.md", report(records, frozen))
    write(folder.path / "report.json", found.model_dump_json(indent=2))
    left = len(frozen.entries) - len(records)
    if as_json:
        say(found.model_dump_json(indent=2))
    else:
        say(f"{found.in_words()} {f'{left} are left: --resume. ' if left else ''}Report: {folder.path / 'report.md'}")
    return LEFT if left else OK


def _tasks_told(folder: CampaignFolder, frozen: Frozen, say: Says) -> int:
    made = sum(folder.adaptation(entry.name) is not None for entry in frozen.entries)
    without = sum(
        folder.adaptation(entry.name) is None and folder.record(entry.name) is not None for entry in frozen.entries
    )
    total = len(frozen.entries)
    none = f", of {without} none could be made" if without else ""
    left = f", {total - made - without} are left" if made + without < total else ""
    say(f"{made} of {total} artefacts have a task in {folder.path}{none}{left}; go on with --resume")
    return OK if made + without == total else LEFT


def _compared(folders: Sequence[Path], given: argparse.Namespace) -> str:
    if given.folder is not None or given.json or len(folders) < 2:
        raise rejected(
            "campaign", "--compare takes two or more campaigns, no FOLDER and no --json", fix="Name their folders."
        )
    records: dict[str, list[KernelRecord]] = {}
    about: dict[str, About] = {}
    for name, path in zip(_named([path.resolve() for path in folders]), folders, strict=True):
        folder = CampaignFolder(path)
        frozen = _frozen(folder)
        records[name] = folder.records(frozen)
        left = len(frozen.entries) - len(records[name])
        about[name] = About(frozen.plan.folder, left, folder.damaged(frozen))
    return compared(records, about)


def _named(folders: Sequence[Path]) -> list[str]:
    """Names by which folders can be told apart: as much of each path's end as that takes.

    Raises:
        Stopped: ``rejected``: one is there twice.
    """
    if len(set(folders)) < len(folders):
        raise rejected("campaign", "--compare names a campaign twice", fix="Name each folder once.")
    count = 1
    while len({path.parts[-count:] for path in folders}) < len(folders):
        count += 1
    return ["/".join(path.parts[-count:]) for path in folders]


def _absolute(path: str) -> Path:
    return Path(os.path.expanduser(path)).absolute()
