"""System calls that namespaces don't hold, closed by a seccomp filter.

Forbidden are what the kernel keeps for all of the machine (keyrings, sockets to the hypervisor), what holds memory that
no process maps (System V segments, queues and semaphores), and interfaces that only serve to attack the kernel. Docker
forbids most of these by default, so CUDA is known to do without. Sources: seccomp(2), linux/bpf_common.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from typing import NamedTuple

# linux/seccomp.h
SET_MODE_FILTER = 1
ALLOW_SPECULATION = 4
"""Without this flag older kernels slow the whole process down."""
ALLOW = 0x7FFF0000
FAIL = 0x00050000
"""With the error number."""
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
"""Offsets in what a filter sees of a call."""
# linux/bpf_common.h
LOAD = 0x20
EQUAL = 0x15
AT_LEAST = 0x35
RETURN = 0x06
X32_CALLS = 0x40000000
"""From here on, x86-64 has all its calls a second time."""

FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""Sockets that belong to a network namespace; those of virtual machines (AF_VSOCK) and others don't."""


class Machine(NamedTuple):
    """How an architecture numbers its system calls."""

    audit: int
    seccomp: int
    socket: int
    forbidden: dict[str, int]


MACHINES = {
    "x86_64": Machine(
        audit=0xC000003E, seccomp=317, socket=41,
        forbidden={
            "shmget": 29, "semget": 64, "msgget": 68, "add_key": 248, "request_key": 249, "keyctl": 250,
            "perf_event_open": 298, "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425,
        },
    ),
    "aarch64": Machine(
        audit=0xC00000B7, seccomp=277, socket=198,
        forbidden={
            "msgget": 186, "semget": 190, "shmget": 194, "add_key": 217, "request_key": 218, "keyctl": 219,
            "perf_event_open": 241, "bpf": 280, "userfaultfd": 282, "io_uring_setup": 425,
        },
    ),
}  # fmt: skip


class _Program(ctypes.Structure):
    """sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def forbid() -> None:
    """Forbid them to this process and all that it starts, for ever. Needs no_new_privs.

    Raises:
        OSError: this kernel or architecture has no such filters.
    """
    machine = MACHINES.get(os.uname().machine)
    if machine is None:
        raise OSError(errno.ENOSYS, f"no filter is known for {os.uname().machine}")
    instructions = program(machine)
    filled = _Program(len(instructions) // 8, instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(machine.seccomp, SET_MODE_FILTER, ALLOW_SPECULATION, ctypes.byref(filled)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def program(machine: Machine) -> bytes:
    """The filter, eight bytes an instruction: its last three allow, refuse, and refuse a kind of socket."""
    checks = [(AT_LEAST, X32_CALLS), *((EQUAL, number) for number in machine.forbidden.values())]
    # Jumps count the instructions that they leave out.
    lines = [(LOAD, 0, 0, ARCHITECTURE)]
    total = len(lines) + 1 + 1 + len(checks) + 1 + 1 + len(FAMILIES) + 3
    allow, refuse, refuse_socket = total - 3, total - 2, total - 1
    lines.append((EQUAL, 0, refuse - len(lines) - 1, machine.audit))
    lines.append((LOAD, 0, 0, NUMBER))
    for comparison, number in checks:
        lines.append((comparison, refuse - len(lines) - 1, 0, number))
    lines.append((EQUAL, 0, allow - len(lines) - 1, machine.socket))
    lines.append((LOAD, 0, 0, FIRST_ARGUMENT))
    for family in FAMILIES:
        other = 0 if family != FAMILIES[-1] else refuse_socket - len(lines) - 1
        lines.append((EQUAL, allow - len(lines) - 1, other, family))
    lines += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, FAIL | errno.EPERM), (RETURN, 0, 0, FAIL | errno.EAFNOSUPPORT)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
