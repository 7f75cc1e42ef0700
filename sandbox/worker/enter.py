"""Closes around a program what bubblewrap leaves open where root starts it, gives up all privileges, and becomes it."""

from __future__ import annotations

import os
from typing import Any

from . import seal


def main(options: dict[str, Any]) -> int:
    """``options``: the ``command``, folders that are ``writable`` to it, ``become_nobody``, and ``processes`` at most.

    As an ordinary user, bubblewrap alone does all this. As root, its user namespace would map to root outside, who owns
    `/dev` and `/proc/sys` and needs no capability to write there.
    """
    seal.close_rest()
    seal.be_killed_first()
    if options["become_nobody"]:
        for folder in options["writable"]:
            os.chown(folder, seal.NOBODY, seal.NOBODY)
    seal.drop_privileges(become_nobody=options["become_nobody"], processes=options["processes"])
    os.execvp(options["command"][0], options["command"])
