"""Names of runs, their attempts and their files as resources."""

import re
from typing import Final, NamedTuple

RUNS: Final = "tritonforge://runs"
_RUN: Final = re.compile(rf"{RUNS}/([^/?#]+)(?:/attempts/([0-9]{{1,9}})(/kernel)?)?(?:\?[^#]*)?")


class Named(NamedTuple):
    """What a URI names."""

    run_id: str
    attempt: int | None
    """None: the run as a whole."""
    is_kernel: bool
    """Whether it is the attempt's file, which never changes."""


def run_uri(run_id: str) -> str:
    """A run."""
    return f"{RUNS}/{run_id}"


def attempt_uri(run_id: str, number: int) -> str:
    """What is known of an attempt."""
    return f"{run_uri(run_id)}/attempts/{number}"


def kernel_uri(run_id: str, number: int) -> str:
    """An attempt's file."""
    return f"{attempt_uri(run_id, number)}/kernel"


def named(uri: str) -> Named | None:
    """What a URI names; None: neither a run nor anything of one."""
    found = _RUN.fullmatch(uri)
    if found is None:
        return None
    run_id, number, kernel = found.groups()
    return Named(run_id, None if number is None else int(number), kernel is not None)
