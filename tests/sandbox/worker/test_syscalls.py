# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""What the filter lets through, on every architecture that it knows: run here as the kernel runs it."""

import errno
import importlib
import socket
import struct

import pytest

READ = {"x86_64": 0, "aarch64": 63}
BIND = {"x86_64": 49, "aarch64": 200}


@pytest.fixture
def syscalls(worker):
    return importlib.import_module("tritonforge_worker.syscalls")


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request):
    return request.param


@pytest.fixture
def verdict(syscalls, machine):
    """What the filter returns for a system call."""
    known = syscalls.MACHINES[machine]
    text = syscalls.program(known)
    lines = [struct.unpack_from("=HBBI", text, start) for start in range(0, len(text), 8)]

    def run(number, argument=0, audit=known.audit):
        seen = {syscalls.NUMBER: number, syscalls.ARCHITECTURE: audit, syscalls.FIRST_ARGUMENT: argument}
        loaded, at = 0, 0
        while True:
            code, if_so, if_not, value = lines[at]
            at += 1
            if code == syscalls.LOAD:
                loaded = seen[value]
            elif code == syscalls.EQUAL:
                at += if_so if loaded == value else if_not
            elif code == syscalls.AT_LEAST:
                at += if_so if loaded >= value else if_not
            else:
                assert code == syscalls.RETURN
                return value

    return run


@pytest.fixture
def refused(syscalls):
    return syscalls.FAIL | errno.EPERM


def test_ordinary_calls_are_allowed(syscalls, machine, verdict):
    assert {verdict(number[machine]) for number in (READ, BIND)} == {syscalls.ALLOW}


def test_every_forbidden_call_is_refused(syscalls, machine, verdict, refused):
    numbers = syscalls.MACHINES[machine].forbidden
    assert {name for name, number in numbers.items() if verdict(number) != refused} == set()


def test_the_same_calls_are_forbidden_everywhere(syscalls):
    first, *others = (machine.forbidden.keys() for machine in syscalls.MACHINES.values())
    assert all(other == first for other in others)


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK])
def test_sockets_of_a_network_namespace_are_allowed(syscalls, machine, verdict, family):
    assert verdict(syscalls.MACHINES[machine].socket, family) == syscalls.ALLOW


@pytest.mark.parametrize("family", [0, 17, 30, 31, 38, 40, 1 << 31])
def test_other_sockets_are_refused(syscalls, machine, verdict, family):
    number = syscalls.MACHINES[machine].socket
    assert verdict(number, family) == syscalls.FAIL | errno.EAFNOSUPPORT


def test_the_calls_of_another_architecture_are_refused(machine, verdict, refused):
    assert verdict(READ[machine], audit=0x40000003) == refused
    assert verdict(0x40000000 + READ[machine]) == refused


def test_an_architecture_that_is_not_known_is_told(syscalls, monkeypatch):
    monkeypatch.setattr(syscalls, "MACHINES", {})
    with pytest.raises(OSError, match="no filter is known"):
        syscalls.forbid()
