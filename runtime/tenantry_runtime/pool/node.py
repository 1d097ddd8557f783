"""A node: gRPC front here, step loop in a process of its own.

| process | does | ends |
|---|---|---|
| front | gRPC, who waits for which sequence, pages to and from other nodes | as `drain.py` has it (0), or after its loop |
| step loop | the members' computation | when its socket closes, at the latest with the front |

A front whose loop dies fails the running sequences, lets the edges read that, and exits with
`LOOP_DIED`: restarting is its supervisor's decision.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
import grpc

from tenantry_runtime.errors import ConfigurationError

from .config import NodeProcessConfig
from .dispatch import Dispatch
from .drain import Drain
from .grpc_options import server_credentials, server_options
from .lent_pages import lend
from .loop_link import ENGINE, LoopLink, start_loop
from .loop_log import Logged, record_of
from .messages import MemberDescription, PrefixChanges, Step
from .page_map import PageMaps
from .page_messages import (
    PagesReady,
    PushAnswer,
    PushBegin,
    PushClose,
    PushEnd,
    PushPage,
    SlotsRead,
)
from .peers import connected_peers
from .push_receiver import PushReceiver
from .push_sender import PushSender
from .service import NodeService
from .shared_pages import SharedPages, SlotLayout
from .tls import is_unix, require_safe
from .wire import Heartbeat, Ready, Unusable

STOPPED = 0
UNUSABLE = 1
LOOP_DIED = 3

FLUSH_S = 0.4
"""How long edges may take to read what they are owed when the node ends."""

Members: TypeAlias = tuple[MemberDescription, ...]
TakeRecord: TypeAlias = Callable[[logging.LogRecord], object]

_log = logging.getLogger(__name__)


async def serve_node(
    config: NodeProcessConfig,
    *,
    build: str = ENGINE,
    export: TakeRecord | None = None,
    on_ready: Callable[[Members], None] | None = None,
    on_leaving: Callable[[], None] | None = None,
) -> int:
    """Serve until told to leave, or the step loop dies; return the exit code.

    `export` takes what the step loop logs, and has printed itself; None: nobody does. `on_ready` is
    called when all members are loaded, `on_leaving` when draining begins.
    """
    incarnation = time.time_ns()
    dispatch = Dispatch(incarnation=incarnation)
    drain = Drain(on_leaving)
    outcome: list[int] = []
    async with start_loop(bytes(config.engine), build=build) as link:
        receiver = PushReceiver(incarnation=incarnation, post=link.post)
        service = NodeService(
            dispatch=dispatch,
            link=link,
            receiver=receiver,
            drain=drain,
            incarnation=incarnation,
            reached_at=config.reached_at,
        )
        async with (
            _grpc_server(config, service),
            connected_peers(config.tls) as peers,
            anyio.create_task_group() as tasks,
        ):
            sender = PushSender(peers=peers, post=link.post, tasks=tasks)
            front = _Front(
                link=link,
                dispatch=dispatch,
                service=service,
                receiver=receiver,
                sender=sender,
                export=export,
                on_ready=on_ready,
            )

            async def leave() -> None:
                await drain.until_over(dispatch, config.drain_s)
                outcome.append(STOPPED)
                dispatch.end("the node is stopping", is_chosen=True)
                tasks.cancel_scope.cancel()

            tasks.start_soon(drain.follow_signals)
            tasks.start_soon(leave)
            tasks.start_soon(link.send_forever)
            outcome.append(await front.follow())
            tasks.cancel_scope.cancel()
    return outcome[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Front:
    """Where what the step loop says goes."""

    link: LoopLink
    dispatch: Dispatch
    service: NodeService
    receiver: PushReceiver
    sender: PushSender
    export: TakeRecord | None
    on_ready: Callable[[Members], None] | None

    async def follow(self) -> int:
        """Pass on what the step loop says until it says no more; return the node's exit code."""
        pages: SharedPages | None = None
        async for report in self.link.reports():
            match report:
                case Step():
                    for cancel in self.dispatch.deliver(report):
                        self.link.post(cancel)
                case PushBegin() | PushPage() | PushEnd() | PushClose():
                    self.sender.obey(report)
                case SlotsRead(slots=slots):
                    self.receiver.free(slots)
                case PushAnswer():
                    self.receiver.answer(report)
                case PrefixChanges():
                    self.dispatch.broadcast(report)
                case Heartbeat(statistics=statistics):
                    self.service.note(statistics)
                case PageMaps() as maps:
                    self.service.note_pages(maps)
                case Logged():
                    if self.export is not None:
                        self.export(record_of(report))
                case PagesReady(slot_bytes=slot_bytes, num_slots=num_slots):
                    layout = SlotLayout(slot_bytes=slot_bytes, num_slots=num_slots)
                    pages = SharedPages(self.link.pages_fd, layout)
                    self.sender.open(pages, lend(self.link.pages_fd, layout))
                case Ready(members=members):
                    self.receiver.open(members, pages)
                    self.service.open(members)
                    if self.on_ready is not None:
                        self.on_ready(members)
                case Unusable(problem=problem):
                    _log.error("%s", problem)
                    return UNUSABLE
                case _:
                    self.dispatch.report(report)

        ending = f"the step loop {await self.link.end()}"
        _log.error("%s", ending)
        self.dispatch.end(ending)
        return LOOP_DIED


@asynccontextmanager
async def _grpc_server(config: NodeProcessConfig, service: NodeService) -> AsyncIterator[None]:
    require_safe(config.address, config.tls)
    # grpc has no types
    server: Any = grpc.aio.server(options=server_options())
    server.add_generic_rpc_handlers((service.handler(),))
    try:
        if config.tls is None or is_unix(config.address):
            server.add_insecure_port(config.address)
        else:
            server.add_secure_port(config.address, server_credentials(config.tls))
    except RuntimeError as error:
        raise ConfigurationError(f"cannot listen on {config.address}: {error}") from error
    await server.start()
    try:
        yield
    finally:
        service.close()
        # streams end by themselves once read; `stop` bounds that and must not be cut short
        with anyio.CancelScope(shield=True):
            await server.stop(FLUSH_S)
