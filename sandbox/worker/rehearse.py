"""Tries a spare's whole seal without torch, and tells what holds: ``{"layers": [...]}`` or ``{"failed": "..."}``."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

from . import seal


def main(options: dict[str, Any]) -> int:
    """``options``: as the preloader's, with ``readable`` (must be), ``hidden`` (must not be) and ``limits``."""
    try:
        seal.enter_namespaces(user=options["user_namespace"])
        child = os.fork()
        if child != 0:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        seal.mount_own_folders(
            scratch_bytes=options["limits"]["scratch_bytes"],
            private=options["folder"],
            reopened=options["reopened"],
            hidden_devices=[],
        )
        # The first process of the namespace is unlike others: look from the second.
        worker = os.fork()
        if worker != 0:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))
        seal.limit(options["limits"])
        seal.drop_privileges(become_nobody=options["become_nobody"], processes=options["limits"]["processes"])
        seal.forbid_calls()
        unreadable = [path for path in options["readable"] if not os.access(path, os.R_OK)]
        if unreadable:
            raise OSError(f"as user {os.getuid()} workers can't read {unreadable[0]}")
        print(json.dumps({"layers": _layers(options)}), flush=True)
    except OSError as error:
        print(json.dumps({"failed": str(error)}), flush=True)
        os._exit(1)
    os._exit(0)


def _layers(options: dict[str, Any]) -> list[dict[str, Any]]:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    visible = [path for path in options["hidden"] if os.access(path, os.R_OK)]
    others = [name for name in os.listdir("/proc") if name.isdigit() and int(name) > os.getpid()]
    uid = os.getuid()
    return [
        _layer("processes", os.getpid() == 2 and not others, "PID namespace of its own: sees and signals only itself"),
        _layer("files", not visible, f"{visible[0]} can be read" if visible else "read-only system folders, no home"),
        _layer("writing", not _writable(), "only a /tmp of its own, of limited size"),
        _layer("network", not _interfaces(), "network namespace of its own, nothing in it"),
        _layer("capabilities", int(status["CapEff"], 16) == 0 and int(status["CapPrm"], 16) == 0, "none"),
        _layer("new privileges", status["NoNewPrivs"].strip() == "1", "none to be had (no_new_privs)"),
        _layer("system calls", status.get("Seccomp", "").strip() == "2", "those that namespaces don't hold are closed"),
        _layer("user namespaces", not _can_nest(), "no further ones can be made"),
        _layer("user", uid != 0, f"runs as user {uid}"),
    ]


def _layer(name: str, holds: bool, detail: str) -> dict[str, Any]:
    return {"name": name, "holds": holds, "detail": detail}


def _writable() -> list[str]:
    places = ["/", "/dev", "/usr", "/etc", "/run", "/sys", "/proc/sys/kernel/core_pattern"]
    return [place for place in places if os.access(place, os.W_OK)]


def _interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex() if name != "lo"]


def _can_nest() -> bool:
    child = os.fork()
    if child == 0:
        try:
            seal.enter_namespaces(user=True)
        except OSError:
            os._exit(1)
        os.kill(os.getpid(), signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 1
