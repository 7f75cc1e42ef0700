"""Where NVIDIA's command-line tools are found. Runs nothing."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

TOOLKITS: Final = "usr/local/cuda*/bin"
"""Where CUDA toolkits put their programs, as a pattern below the root."""


def find_executable(
    name: str,
    variable: str,
    folders: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    root: Path = Path("/"),
) -> Path | None:
    """The program to use, or None where there is none.

    Clients start servers with a bare environment, so the usual places are searched too. `variable` decides alone
    where it is set: if it doesn't name an executable there is no such program, rather than another one that nobody
    asked for. Then come PATH and the folders, in each pattern's order the unversioned one before the newest.

    Args:
        name: Of the program.
        variable: The environment variable that names one.
        folders: Patterns of folders below the root, in the order in which they are searched.
        environment: Instead of the process's own.
        root: Where the file system starts, for tests.
    """
    variables = os.environ if environment is None else environment
    path = variables.get("PATH", "")
    if chosen := variables.get(variable):
        found = shutil.which(chosen, path=path)
        return Path(found) if found else None
    if found := shutil.which(name, path=path):
        return Path(found)
    for pattern in folders:
        for folder in sorted(root.glob(pattern), key=lambda folder: _newest_first(folder.relative_to(root))):
            if (folder / name).is_file() and os.access(folder / name, os.X_OK):
                return folder / name
    return None


def _newest_first(folder: Path) -> list[int]:
    # An empty list sorts before every other: the unversioned link is the administrator's choice.
    return [-int(number) for number in re.findall(r"\d+", str(folder))]
