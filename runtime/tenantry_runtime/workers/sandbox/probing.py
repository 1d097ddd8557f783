"""Tries each layer in a fork of its own, and prints what happened. Standard library only.

A layer works if the kernel says yes and then holds: what it should refuse is attempted.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial

from . import linux
from .cgroups import CONTROLLERS, Group, GroupLimits, find_hierarchies
from .jail import build_root, enter_namespaces
from .landlock import Rules
from .seccomp import build_filter
from .users import usable_users
from .wire import Namespaces, TemplateOrder

_MEMORY_BYTES = 256 << 20


def main(root: str) -> None:
    """Print a list of [layer, detail, problem or null]; `root` is an empty folder."""
    tries: list[tuple[str, Callable[[], str]]] = [
        ("namespaces", lambda: _namespaces(_order("own", root))),
        ("user-namespace", lambda: _user_namespace(root)),
        ("own-users", _own_users),
        ("no-new-privileges", _no_new_privileges),
        ("landlock", _landlock),
        ("system-call-filter", _filter),
        ("limits", _limits),
        ("process-handles", _process_handles),
        *((f"cgroup-{name}", partial(_group, name)) for name in CONTROLLERS),
    ]
    reports = [[name, *_in_fork(attempt)] for name, attempt in tries]
    sys.stdout.write(json.dumps(reports))


def _namespaces(order: TemplateOrder) -> str:
    enter_namespaces(order)
    build_root(order)
    if os.getpid() != 1 or sorted(os.listdir("/")) != ["dev", "tmp"]:
        raise AssertionError("the process still sees the machine's processes or files")
    linux.unshare(linux.CLONE_NEWPID | linux.CLONE_NEWNS)
    linux.mount("tmpfs", "/tmp", "tmpfs", 0, "size=1m")
    if order.namespaces == "user":
        linux.unshare(linux.CLONE_NEWUSER)
    return "mount, pid, net, ipc and uts; a root and files of its own"


def _user_namespace(root: str) -> str:
    if os.getuid() == 0:
        raise AssertionError("the runtime is root: its isolates would be, too; own users serve it")
    return _namespaces(_order("user", root))


def _own_users() -> str:
    users = usable_users()
    if users is None:
        raise AssertionError("too few users are mapped here (/proc/self/uid_map)")
    uid = users[0]
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    linux.drop_capabilities()
    _must_fail(PermissionError, lambda: os.setuid(0))
    return f"from {uid} on, without capabilities"


def _no_new_privileges() -> str:
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    return ""


def _landlock() -> str:
    version = linux.landlock_version()
    if not version:
        raise AssertionError("the kernel has none, or does not enable it (`lsm=` at its start)")
    rules = Rules([])
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.landlock_restrict(rules.ruleset(None))
    _must_fail(PermissionError, lambda: os.listdir("/"))
    return f"version {version}"


def _filter() -> str:
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    program = build_filter(os.getpid(), has_private_files=False, has_threads=True)
    linux.install_filter(program)
    _must_fail(PermissionError, os.fork)
    _must_fail(PermissionError, lambda: os.kill(os.getppid(), 0))
    _must_fail(PermissionError, socket.socket)
    os.kill(os.getpid(), 0)
    return f"{len(program) // 8} instructions"


def _limits() -> str:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    _must_fail(MemoryError, lambda: bytearray(_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    _must_fail(OSError, lambda: os.open(os.devnull, os.O_RDONLY))
    return ""


def _process_handles() -> str:
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    handle = os.pidfd_open(child)
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    os.waitpid(child, 0)
    return ""


def _group(controller: str) -> str:
    hierarchies = [found for found in find_hierarchies() if controller in found.controllers]
    if not hierarchies:
        raise AssertionError("the kernel has none, or none is mounted or delegated here")
    limits = GroupLimits(
        memory_bytes=_MEMORY_BYTES if controller == "memory" else None,
        num_tasks=1 if controller == "pids" else None,
        cpus=1.0 if controller == "cpu" else None,
    )
    group = Group.make(hierarchies, f"tenantry-probe-{os.getpid()}", limits)
    try:
        _in_group(group, controller)
    finally:
        group.remove()
    return f"version {hierarchies[0].version}"


def _in_group(group: Group, controller: str) -> None:
    problem = _in_fork(partial(_join, group, controller))[1]
    if problem is not None:
        raise AssertionError(problem)


def _join(group: Group, controller: str) -> str:
    group.add(os.getpid())
    if controller == "pids":
        _must_fail(OSError, os.fork)
    return ""


def _must_fail(kind: type[BaseException], attempt: Callable[[], object]) -> None:
    try:
        attempt()
    except kind:
        return
    raise AssertionError("what it should refuse was done")


def _order(namespaces: Namespaces, root: str) -> TemplateOrder:
    return TemplateOrder(
        namespaces=namespaces,
        root=root,
        binds=[(os.devnull, os.devnull)],
        hidden=[],
        path=[],
        readable=[],
        has_landlock=False,
        has_filter=False,
        has_threads=False,
        guest="",
    )


def _in_fork(attempt: Callable[[], str]) -> tuple[str, str | None]:
    """Return the detail and the problem, which is None if the attempt succeeded."""
    told, telling = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if not child:
        told.close()
        answer: tuple[str, str | None]
        try:
            answer = (attempt(), None)
        except Exception as error:
            answer = ("", str(error) or type(error).__name__)
        telling.send(json.dumps(answer).encode())
        os._exit(0)
    telling.close()
    with told:
        packet = told.recv(1 << 16)
    _, status = os.waitpid(child, 0)
    if not packet:
        return "", f"the process that tried ended with {os.waitstatus_to_exitcode(status)}"
    detail, problem = json.loads(packet)
    return detail, problem
