# pyright: basic
"""Requests that a reader of the profiler's reports answers: it runs NVIDIA's code on a file, and no kernel."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

Reply = tuple[dict[str, Any], list[Any]]

REPORT = "report.ncu-rep"
"""In the worker's scratch folder, which is its working directory."""


class ReportSide:
    """Reads one report after the other."""

    def __init__(self) -> None:
        self.stage = "worker"

    def do_load_reader(self, _: list[Any], *, reader_folder: str) -> Reply:
        """Get ready to read a report; what is in the way is told when one is to be read."""
        from . import ncu_reader

        with contextlib.suppress(ncu_reader.Unreadable):
            ncu_reader.load_reader(reader_folder)
        return {}, []

    def do_read_report(
        self, blobs: list[Any], *, reader_folder: str, wanted: list[str], launches_limit: int, texts: bool
    ) -> Reply:
        """What the report in the first blob holds; its launches are the reply's blob, as JSON."""
        from . import ncu_reader

        self.stage = ncu_reader.STAGE
        path = Path(REPORT).resolve()
        path.write_bytes(blobs[0])
        results: list[Any] = []
        try:
            return ncu_reader.read(str(path), reader_folder, wanted, launches_limit, results, texts=texts), results
        except ncu_reader.Unreadable as error:
            # As data: a failure of that kind is one that no worker may tell.
            return {"unreadable": str(error)}, []
        finally:
            path.unlink()
