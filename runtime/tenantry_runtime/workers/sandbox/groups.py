"""The control groups of one template: one around all of it, and one for each isolate.

| group | of |
|---|---|
| `tenantry-PID-ID` | all isolates together; it has no processes itself, which version 2 wants |
| `tenantry-PID-ID/template` | the template, and isolates that have none of their own |
| `tenantry-PID-ID/N` | an isolate's memory |
"""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress

import anyio
import anyio.to_thread

from .cgroups import CONTROLLERS, Group, GroupLimits, Hierarchy, find_hierarchies

_PREFIX = "tenantry-"

_log = logging.getLogger(__name__)


class TemplateGroups:
    """Groups that hold the processes of a template. Every call that waits for the kernel runs in a thread."""

    def __init__(self, around: Group, template: Group) -> None:
        self._around = around
        self._template = template
        self._isolates: dict[int, Group] = {}
        self._ended: list[Group] = []
        self._has_ended = anyio.Event()

    @classmethod
    async def open(cls, limits: GroupLimits, template_pid: int) -> TemplateGroups:
        """Make the groups and move the template there, before it has children. Raises `OSError`."""
        return await anyio.to_thread.run_sync(cls._open, limits, template_pid)

    async def admit(self, id: int, pid: int, memory_bytes: int) -> None:
        """Move a new isolate to a group of its own. Raises `OSError`."""
        limits = GroupLimits(memory_bytes=memory_bytes)
        group = await anyio.to_thread.run_sync(self._around.child, str(id), limits, limits.needs())
        self._isolates[id] = group
        await anyio.to_thread.run_sync(group.add, pid)

    def leave(self, id: int) -> None:
        """Have the group of an isolate that has ended removed."""
        group = self._isolates.pop(id, None)
        if group is not None:
            self._ended.append(group)
            self._has_ended.set()

    async def run(self) -> None:
        """Remove groups of isolates that have ended, until cancelled."""
        while True:
            await self._has_ended.wait()
            self._has_ended = anyio.Event()
            await self._remove_ended()

    async def aclose(self) -> None:
        """Remove all groups; the processes have ended."""
        with anyio.CancelScope(shield=True):
            self._ended += self._isolates.values()
            self._isolates.clear()
            await self._remove_ended()
            await _remove(self._template)
            await _remove(self._around)

    async def _remove_ended(self) -> None:
        while self._ended:
            # still there if this is cancelled
            await _remove(self._ended[0])
            del self._ended[0]

    @classmethod
    def _open(cls, limits: GroupLimits, template_pid: int) -> TemplateGroups:
        hierarchies = find_hierarchies()
        _remove_left_behind(hierarchies)
        name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(6)}"
        around = Group.make(hierarchies, name, limits)
        try:
            template = around.child("template", GroupLimits(), CONTROLLERS)
        except OSError:
            around.remove()
            raise
        try:
            template.add(template_pid)
        except OSError:
            template.remove()
            around.remove()
            raise
        return cls(around, template)


def _remove_left_behind(hierarchies: list[Hierarchy]) -> None:
    """Remove empty groups of runtimes that were killed; the PID in their names is theirs."""
    for hierarchy in hierarchies:
        for around in hierarchy.own.glob(f"{_PREFIX}[0-9]*-*"):
            pid = around.name.removeprefix(_PREFIX).partition("-")[0]
            if not pid.isdecimal() or os.path.exists(f"/proc/{pid}"):
                continue
            for folder in (*around.glob("*/"), around):
                with suppress(OSError):
                    folder.rmdir()


async def _remove(group: Group) -> None:
    try:
        await anyio.to_thread.run_sync(group.remove)
    except OSError as error:
        _log.warning("a control group of isolates stays behind: %s", error)
