"""What the commands for runs, lessons and exports take."""

import argparse
from typing import Any, Protocol


class Commands(Protocol):
    """What argparse adds subcommands to."""

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser: ...


def add_commands(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `runs`, `lessons` and `verify` to the command line."""
    runs = _group(commands, "runs", "look at optimization runs, check, export, resume and delete them")
    listed = _action(runs, "list", shared, "the runs that are kept, newest first")
    listed.add_argument("--json", action="store_true", help="print them as JSON")
    shown = _action(runs, "show", shared, "one run with its attempts")
    shown.add_argument("run", metavar="RUN", help="its id, as `runs list` tells it")
    shown.add_argument("--json", action="store_true", help="print all that is kept of it as JSON, hidden cases apart")
    shown.add_argument(
        "--hidden", action="store_true", help="with --json: names and times of hidden cases too; for people"
    )
    exported = _action(runs, "export", shared, "write the best kernel with baseline, task, patch and verification.json")
    exported.add_argument("run", metavar="RUN")
    exported.add_argument("--to", metavar="DIR", help="folder that the files go into (default: RUN)")
    exported.add_argument("--attempt", metavar="N", type=int, help="another attempt than the best one")
    exported.add_argument("--force", action="store_true", help="replace files that no export of this run has written")
    resumed = _action(runs, "resume", shared, "evaluate what a server that ended has left behind")
    resumed.add_argument("run", metavar="RUN")
    deleted = _action(runs, "delete", shared, "delete a run with its files; lessons stay")
    deleted.add_argument("run", metavar="RUN")
    deleted.add_argument("--yes", action="store_true", help="do not ask")
    _action(runs, "check", shared, "look whether anything that is kept is lost or damaged")

    lessons = _group(commands, "lessons", "look at what runs have taught, export and delete it")
    known = _action(lessons, "list", shared, "all lessons, newest first")
    known.add_argument("--json", action="store_true", help="print them as JSON")
    kept = _action(lessons, "export", shared, "write all lessons to a JSON file")
    kept.add_argument("file", metavar="FILE", help="that does not exist yet; - for standard output")
    kept.add_argument("--force", action="store_true", help="replace FILE")
    forgotten = _action(lessons, "delete", shared, "forget lessons")
    forgotten.add_argument("ids", metavar="ID", nargs="*", help="as `lessons list` tells them")
    forgotten.add_argument("--all", action="store_true", help="forget all of them")
    forgotten.add_argument("--yes", action="store_true", help="do not ask")

    verify = commands.add_parser(
        "verify", parents=[shared], help="check an export on this machine: hashes, results and, with a GPU, times"
    )
    verify.add_argument("folder", metavar="DIR", help="that `runs export` has written")
    verify.add_argument("--json", action="store_true", help="print the result as JSON")


def _group(commands: Commands, name: str, text: str) -> Commands:
    group = commands.add_parser(name, help=text, description=_sentence(text))
    return group.add_subparsers(dest="action", metavar="action", required=True)


def _action(group: Commands, name: str, shared: argparse.ArgumentParser, text: str) -> argparse.ArgumentParser:
    return group.add_parser(name, parents=[shared], help=text, description=_sentence(text), allow_abbrev=False)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
