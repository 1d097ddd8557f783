"""Namespaces and the root that isolates see, made once by their template. Standard library only."""

from __future__ import annotations

import os
import socket
from typing import NoReturn

from . import linux
from .wire import TemplateOrder

PRIVATE = "/tmp"
"""Where each isolate has files of its own, in namespaces."""

_HOSTNAME = "isolate"
_SPACES = (
    linux.CLONE_NEWNS
    | linux.CLONE_NEWUTS
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWNET
    | linux.CLONE_NEWPID
)
_READ_ONLY = linux.MOUNT_ATTR_RDONLY | linux.MOUNT_ATTR_NOSUID
# mount points only: what they hold is bound
_ROOT_OPTIONS = "size=1m,nr_inodes=4k,mode=755"
_HIDDEN_OPTIONS = "size=4k,nr_inodes=1,mode=555"


def enter_namespaces(order: TemplateOrder) -> None:
    """Return in a new process, the first of new namespaces; this one waits for it and ends as it does."""
    if order.namespaces == "user":
        uid, gid = os.getuid(), os.getgid()
        linux.unshare(linux.CLONE_NEWUSER | _SPACES)
        # without it a process without privileges may not map its group
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"0 {uid} 1")
        _write("/proc/self/gid_map", f"0 {gid} 1")
    else:
        linux.unshare(_SPACES)
    child = os.fork()
    if child:
        _wait_for(child)
    linux.prctl(linux.PR_SET_PDEATHSIG, 9)
    socket.sethostname(_HOSTNAME)


def build_root(order: TemplateOrder) -> None:
    """Leave this mount namespace's root for one that has what `order` binds, and nothing else."""
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", order.root, "tmpfs", flags, _ROOT_OPTIONS)
    for source, target in order.binds:
        _bind(source, order.root + target)
    for folder in order.hidden:
        linux.mount("tmpfs", order.root + folder, "tmpfs", flags, _HIDDEN_OPTIONS)
    os.mkdir(order.root + PRIVATE)
    os.chdir(order.root)
    os.mkdir("old")
    linux.pivot_root(".", "old")
    os.chdir("/")
    linux.unmount("/old")
    os.rmdir("/old")
    linux.restrict_mount("/", _READ_ONLY | linux.MOUNT_ATTR_NODEV, is_recursive=False)


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "x"):
            pass
    linux.mount(source, target, None, linux.MS_BIND | linux.MS_REC)
    is_device = source.startswith("/dev/")
    linux.restrict_mount(target, _READ_ONLY | (0 if is_device else linux.MOUNT_ATTR_NODEV))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _wait_for(child: int) -> NoReturn:
    """Hold nothing that the template holds: its socket must end with it."""
    linux.close_range(0)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
