"""Templates: processes that import what every isolate needs, and are forked into isolates."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import msgspec

from .control import Control
from .errors import SandboxTooWeak, SpawnFailed, TemplateFailed
from .groups import TemplateGroups
from .guest_folder import guest_folder
from .level import Layers, Level
from .order import has_own_users, template_order
from .probe import missing_for, probe_layers
from .spawned import ExitStatus, Life, Spawned
from .spec import IsolateRlimits, TemplateSpec, UidRange
from .wire import GO, MAX_MESSAGE_BYTES, READY, SpawnOrder, TemplateOrder

# importing a few hundred modules, on a machine that is busy
_START_TIMEOUT_S = 30.0
_CONFINE_TIMEOUT_S = 10.0
_KILLED = ExitStatus(signal=9, code=None)


class _Refusal(msgspec.Struct, frozen=True):
    failed: str


class Template:
    """A template process that runs."""

    def __init__(
        self,
        *,
        process: anyio.abc.Process,
        control: socket.socket,
        level: Level,
        uids: UidRange | None,
        groups: TemplateGroups | None,
    ) -> None:
        """`uids` is None where isolates have no users of their own."""
        self.level = level
        self._process = process
        self._uids = uids
        self._groups = groups
        self._ids = itertools.count(1)
        self._lives: dict[int, Life] = {}
        self._ended = anyio.Event()
        self._control = Control(control, self._on_exit)

    @property
    def pid(self) -> int:
        """Of the process with which the template ends."""
        return self._process.pid

    @property
    def num_alive(self) -> int:
        """Isolates that have not ended, those that are being confined included."""
        return len(self._lives)

    @property
    def has_ended(self) -> bool:
        """Whether it is gone, and with it all its isolates."""
        return self._ended.is_set()

    async def wait(self) -> None:
        """Wait until it has ended."""
        await self._ended.wait()

    @asynccontextmanager
    async def running(self, order: TemplateOrder) -> AsyncIterator[None]:
        """Have it make itself ready, hear of what happens, and kill it in the end."""
        await self._begin(order)
        raised: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run)
            if self._groups is not None:
                tasks.start_soon(self._groups.run)
            try:
                yield
            except Exception as error:
                # as it is, not in a group
                raised = error
            tasks.cancel_scope.cancel()
        if raised is not None:
            raise raised

    async def _begin(self, order: TemplateOrder) -> None:
        try:
            with anyio.fail_after(_START_TIMEOUT_S):
                await self._control.begin(order)
        except SpawnFailed as error:
            raise TemplateFailed(error.problem) from error
        except TimeoutError as error:
            raise TemplateFailed(f"it was not ready in {_START_TIMEOUT_S:g} s") from error

    async def _run(self) -> None:
        try:
            await self._control.run()
        finally:
            if self._process.returncode is None:
                self._process.kill()
            with anyio.CancelScope(shield=True):
                await self._process.wait()
            self._ended.set()
            for id in list(self._lives):
                self._on_exit(id, _KILLED)

    async def spawn(self, limits: IsolateRlimits | None = None) -> Spawned:
        """Return a blank isolate, confined and running. Raises `SpawnFailed`."""
        if self.has_ended:
            raise SpawnFailed("its template has ended")
        limits = limits or IsolateRlimits()
        order = self._order(limits)
        life = self._lives[order.id] = Life(uid=order.uid)
        mine, theirs = socket.socketpair()
        told, telling = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.setblocking(False)
        told.setblocking(False)
        with told:
            try:
                with theirs, telling:
                    await self._begin_life(order, [theirs.fileno(), telling.fileno()])
                # cancelled from here on, the process ends by itself: nobody tells it to go on
                pidfd = await self._control.answer(order.id)
            except BaseException as error:
                mine.close()
                if isinstance(error, SpawnFailed):
                    self._on_exit(order.id, _KILLED)
                raise
            spawned = Spawned(socket=mine, pidfd=pidfd, life=life)
            try:
                await _confined(told, life)
                if self._groups is not None:
                    await self._admit(self._groups, order.id, spawned.pid, limits.group_bytes)
                _let_go(told)
            except BaseException:
                await spawned.aclose()
                raise
        return spawned

    async def _begin_life(self, order: SpawnOrder, descriptors: list[int]) -> None:
        try:
            await self._control.order(order, descriptors)
        except BaseException:
            self._on_exit(order.id, _KILLED)
            raise

    def _order(self, limits: IsolateRlimits) -> SpawnOrder:
        try:
            uid = self._uids.take() if self._uids is not None else None
        except LookupError as error:
            raise SpawnFailed(str(error)) from error
        return SpawnOrder(
            id=next(self._ids),
            uid=uid,
            memory_bytes=limits.memory_bytes,
            address_bytes=limits.address_bytes,
            # a user that is the runtime's too has more threads than an isolate's
            num_threads=limits.num_threads if self._counts_threads else None,
            num_files=limits.num_files,
            private_bytes=limits.private_bytes,
            cpu_s=limits.cpu_s,
        )

    async def _admit(self, groups: TemplateGroups, id: int, pid: int, memory_bytes: int) -> None:
        try:
            await groups.admit(id, pid, memory_bytes)
        except OSError as error:
            raise SpawnFailed(f"its control group: {error}") from error

    @property
    def _counts_threads(self) -> bool:
        return self._uids is not None or self.level is Level.USER_NAMESPACE

    def _on_exit(self, id: int, status: ExitStatus) -> None:
        life = self._lives.pop(id, None)
        if life is None:
            return
        if life.uid is not None and self._uids is not None:
            self._uids.give_back(life.uid)
        if self._groups is not None:
            self._groups.leave(id)
        life.end(status)


@asynccontextmanager
async def open_template(
    spec: TemplateSpec, *, uids: UidRange | None = None
) -> AsyncIterator[Template]:
    """Start a template; at the end it and all its isolates are killed.

    `uids` is shared by all templates of this process; None: a range of its own. Raises
    `SandboxTooWeak` where this machine confines less than the floor, and `TemplateFailed`.
    """
    layers = spec.layers or await probe_layers(spec.interpreter)
    level = _level(spec, layers)
    if sys.platform != "linux":
        raise TemplateFailed("isolates need Linux, whatever the floor")
    own_users = (uids or UidRange()) if has_own_users(level, layers) else None
    with guest_folder(spec.interpreter, spec.guest, spec.directory) as folder:
        order = template_order(spec, level, layers, folder)
        async with _process(spec) as (process, control), _groups(spec, process) as groups:
            template = Template(
                process=process, control=control, level=level, uids=own_users, groups=groups
            )
            async with template.running(order):
                yield template


@asynccontextmanager
async def _process(
    spec: TemplateSpec,
) -> AsyncIterator[tuple[anyio.abc.Process, socket.socket]]:
    """Start the process, which waits for its order; kill it in the end."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.setblocking(False)
    with mine:
        with theirs:
            process = await _start(spec, theirs.fileno())
        async with process:
            try:
                yield process, mine
            finally:
                if process.returncode is None:
                    process.kill()


@asynccontextmanager
async def _groups(
    spec: TemplateSpec, process: anyio.abc.Process
) -> AsyncIterator[TemplateGroups | None]:
    if spec.limits is None:
        yield None
        return
    try:
        groups = await TemplateGroups.open(spec.limits, process.pid)
    except OSError as error:
        raise TemplateFailed(f"its control groups: {error}") from error
    try:
        yield groups
    finally:
        await groups.aclose()


async def _start(spec: TemplateSpec, control: int) -> anyio.abc.Process:
    return await anyio.open_process(
        spec.interpreter.start("template", str(control)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        pass_fds=(control,),
        start_new_session=True,
    )


def _level(spec: TemplateSpec, layers: Layers) -> Level:
    level = spec.level or layers.level
    if not (layers.can(level) and level.reaches(spec.floor)):
        reached = level if layers.can(level) else layers.level
        wanted = spec.level or spec.floor
        raise SandboxTooWeak(reached, wanted, missing_for(wanted, layers))
    return level


async def _confined(told: socket.socket, life: Life) -> None:
    """Wait until an isolate says that it is confined."""
    with anyio.move_on_after(_CONFINE_TIMEOUT_S):
        await anyio.wait_readable(told)
        packet = told.recv(MAX_MESSAGE_BYTES)
        if packet == READY:
            return
        if packet:
            raise SpawnFailed(msgspec.json.decode(packet, type=_Refusal).failed)
        await life.ended.wait()
        raise SpawnFailed(f"it ended while it was confined: {life.status}")
    raise SpawnFailed(f"it was not confined in {_CONFINE_TIMEOUT_S:g} s")


def _let_go(told: socket.socket) -> None:
    try:
        told.send(GO)
    except OSError as error:
        raise SpawnFailed(f"it ended when it was confined: {error}") from error
