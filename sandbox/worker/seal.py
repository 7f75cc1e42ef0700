"""Closes the world around a forked spare: namespaces, mounts, limits and privileges, by direct system calls.

The preloader is already inside bubblewrap: a read-only tree of system folders, no home, no network. Every spare goes
one step further, so that spares can't see, signal or reach each other or the preloader: namespaces of its own, a
`/tmp` of its own, and nothing left with which to undo that.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import stat
from pathlib import Path
from typing import Any

from . import syscalls

# sched.h
NEW_MOUNTS = 0x00020000
NEW_HOSTNAME = 0x04000000
NEW_IPC = 0x08000000
NEW_USER = 0x10000000
NEW_PID = 0x20000000
NEW_NETWORK = 0x40000000
# sys/mount.h
READ_ONLY = 1
NO_SUID = 2
NO_DEVICES = 4
NO_EXEC = 8
REMOUNT = 32
BIND = 4096
RECURSIVE = 16384
SLAVE = 1 << 19
# linux/prctl.h
SET_PARENT_DEATH_SIGNAL = 1
SET_DUMPABLE = 4
DROP_BOUNDING = 24
SET_SUBREAPER = 36
SET_NO_NEW_PRIVILEGES = 38
AMBIENT = 47
AMBIENT_CLEAR_ALL = 4
CAPABILITY_VERSION_3 = 0x20080522

NOBODY = 65534
NAMESPACED_PROCESS_COUNT = (5, 14)
"""Linux release from which RLIMIT_NPROC counts within the user namespace, not over all that the user runs."""
FILE_BYTES = 16 << 10
"""A folder of limited size holds as many files as of this size: each takes memory of the kernel's, empty ones too."""
CPU_GRACE_S = 5
"""From the signal that tells a process that its CPU time is over, to its end if it ignores that."""

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, *arguments: int) -> None:
    """prctl(2); OSError where the kernel refuses."""
    values = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(option, *values), "prctl")


def enter_namespaces(*, user: bool) -> None:
    """Unshare everything that spares must not share; the next fork is the first process of its own PID namespace.

    Args:
        user: through a user namespace, as an ordinary user must; root can do without.

    Raises:
        OSError: the kernel refuses.
    """
    # A process that can't be dumped doesn't own its own maps.
    prctl(SET_DUMPABLE, 1)
    flags = NEW_MOUNTS | NEW_HOSTNAME | NEW_IPC | NEW_PID | NEW_NETWORK
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(flags | (NEW_USER if user else 0)), "unshare")
    if user:
        _map_to_self(uid, gid)


def mount_own_folders(*, scratch_bytes: int, private: str, reopened: dict[str, str], hidden_devices: list[str]) -> None:
    """Fresh `/proc`, `/tmp` and `/dev/shm`; nothing else can be written to; hidden devices lead nowhere.

    Args:
        scratch_bytes: what each of the writable folders holds at most.
        private: the preloader's own folder.
        reopened: what must stay readable below `/tmp`, with where it is mounted beside.
        hidden_devices: device nodes that this spare must not use.

    Raises:
        OSError: the kernel refuses.
    """
    _mount(None, "/", None, RECURSIVE | SLAVE)
    _mount("proc", "/proc", "proc", NO_SUID | NO_DEVICES | NO_EXEC)
    close_rest()
    for folder in ("/tmp", "/dev/shm"):
        size = f"size={scratch_bytes},nr_inodes={max(scratch_bytes // FILE_BYTES, 1)},mode=1777"
        _mount("tmpfs", folder, "tmpfs", NO_SUID | NO_DEVICES, size)
    for path, beside in reopened.items():
        if os.path.isdir(beside):
            os.makedirs(path)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path).touch()
        # With what is mounted in it: the masks of what must not be seen.
        _mount(beside, path, None, BIND | RECURSIVE)
    _mount(private, private, None, BIND | RECURSIVE)
    _mount(None, private, None, BIND | REMOUNT | READ_ONLY | NO_SUID | NO_DEVICES)
    for device in hidden_devices:
        if os.path.isdir(device):
            _mount("tmpfs", device, "tmpfs", READ_ONLY | NO_SUID | NO_DEVICES, "size=0")
        else:
            _mount("/dev/null", device, None, BIND)


def close_rest() -> None:
    """Nothing in `/proc` and `/dev` can be changed any more.

    Raises:
        OSError: the kernel refuses.
    """
    _close_machine()
    _close_devices()


def _close_machine() -> None:
    """What in `/proc` is the machine's, not a process's, becomes read-only: root needs no capability to write to it."""
    for entry in os.scandir("/proc"):
        mode = entry.stat(follow_symlinks=False).st_mode
        if not entry.name.isdecimal() and (stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and mode & 0o222)):
            _mount(entry.path, entry.path, None, BIND)
            _make_read_only(entry.path)
    # Only the owner of a user namespace can write here, about those below its own: see `_forbid_user_namespaces`.
    limits = "/proc/sys/user"
    _mount(limits, limits, None, BIND)
    _mount(None, limits, None, BIND | REMOUNT | NO_SUID | NO_DEVICES | NO_EXEC)


def _close_devices() -> None:
    """Device nodes can be used and not be changed; terminals, which spares would share, are none there."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        point, kind = line.split()[1:3]
        if point.startswith("/dev/") and kind not in {"tmpfs", "devpts"}:
            _make_read_only(point)
    _mount("tmpfs", "/dev/pts", "tmpfs", READ_ONLY | NO_SUID | NO_DEVICES | NO_EXEC)


def be_killed_first() -> None:
    """Where memory runs out, the kernel ends this process and its children before any other."""
    Path("/proc/self/oom_score_adj").write_text("1000")


def limit(limits: dict[str, int]) -> None:
    """Resource limits; the address space stays unlimited because CUDA reserves terabytes of it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    cpu_s = limits["cpu_s"]
    _set_limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    _set_limit(resource.RLIMIT_NOFILE, limits["descriptors"])
    _set_limit(resource.RLIMIT_CPU, cpu_s, cpu_s + CPU_GRACE_S)


def limit_processes(processes: int) -> None:
    """Processes and threads, counted over all of this user's in this user namespace."""
    _set_limit(resource.RLIMIT_NPROC, processes)


def _set_limit(kind: int, value: int, at_most: int | None = None) -> None:
    _, hard = resource.getrlimit(kind)
    ceiling = value if at_most is None else at_most
    ceiling = ceiling if hard == resource.RLIM_INFINITY else min(ceiling, hard)
    resource.setrlimit(kind, (min(value, ceiling), ceiling))


def drop_privileges(*, become_nobody: bool, processes: int) -> None:
    """No capabilities, none to be had, and, where root started it, no longer root.

    Args:
        become_nobody: root started it.
        processes: how many processes and threads there may be.

    Raises:
        OSError: the kernel refuses.
    """
    if become_nobody:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    # Changing user made the process undumpable: its own /proc/self would belong to root.
    prctl(SET_DUMPABLE, 1)
    alone = False
    with contextlib.suppress(OSError):
        _forbid_user_namespaces()
        alone = kernel_release() >= NAMESPACED_PROCESS_COUNT
    # Only now: a limit that is set before a user namespace is made also holds for all beside it, taken together.
    if alone or become_nobody:
        limit_processes(processes)
    with contextlib.suppress(OSError):
        prctl(AMBIENT, AMBIENT_CLEAR_ALL)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        with contextlib.suppress(OSError):
            prctl(DROP_BOUNDING, capability)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(none)), "capset")
    prctl(SET_NO_NEW_PRIVILEGES, 1)


def forbid_calls() -> None:
    """Fewer system calls, where the kernel can filter them, and no privileges for a program that is executed."""
    prctl(SET_NO_NEW_PRIVILEGES, 1)
    with contextlib.suppress(OSError):
        syscalls.forbid()


def _map_to_self(uid: int, gid: int) -> None:
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _forbid_user_namespaces() -> None:
    """A new user namespace hands out all capabilities again, inside it: enter a last one that allows no other."""
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(NEW_USER), "unshare")
    _map_to_self(uid, gid)
    # Counts namespaces below the one that writes it; never the host's.
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


def kernel_release() -> tuple[int, ...]:
    """The running Linux release, such as (6, 1)."""
    return tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())


def _make_read_only(point: str) -> None:
    # Flags that came from an outer namespace must stay.
    kept = os.statvfs(point).f_flag & (NO_SUID | NO_DEVICES | NO_EXEC)
    _mount(None, point, None, BIND | REMOUNT | READ_ONLY | kept)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _check(_libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]), f"mount {target}")


def _check(result: Any, what: str) -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
