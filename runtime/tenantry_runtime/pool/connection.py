"""One connection of an edge to a node, from handshake to loss."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import anyio
import grpc
import msgspec
from msgspec.structs import replace

from tenantry_runtime.errors import (
    CacheIntegrityError,
    CapacityExceeded,
    ContextExceeded,
    GenerationFailed,
    HandoffFailed,
    IncompatibleNode,
    NodeLost,
    ReaderTooSlow,
    RequestTimeout,
    TenantryError,
)

from .bell import Bell
from .frames import FrameJoiner, MalformedFrame, split
from .grpc_options import (
    CALL_IS_OVER,
    HELLO,
    INCARNATION_KEY,
    PAGES,
    STATISTICS,
    WORK,
    channel_for,
    channel_options,
)
from .interface import NodeObserver, SequencePreempted
from .liveness import Liveness
from .mailbox import Mailbox
from .messages import (
    OLDEST_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    SERVICE_EXCHANGE_VERSION,
    Cancel,
    Deliver,
    Delivered,
    Failed,
    Hello,
    NodeDescription,
    NodeMessage,
    NodeStatistics,
    Preempted,
    PrefixChanges,
    Reserved,
    SequenceTokens,
    ServedElsewhere,
    Started,
    Step,
    Submit,
)
from .outbox import Outbox
from .page_map import PageMaps
from .tls import TlsFiles
from .wire import (
    decode_description,
    decode_node_message,
    decode_page_maps,
    decode_statistics,
    encode,
    pack,
)

MAX_UNSENT_BYTES = 8 << 20
"""Submissions wait while more than this waits for the node to read: eight of the longest prompts,
or some thousand ordinary ones."""

MAX_UNREAD_TOKENS = 1 << 14
"""Of one sequence. A reader that falls this far behind loses it: five minutes at 50 tokens a second."""

HANDSHAKE_TIMEOUT_S = 30.0
"""A node that still loads its members answers when they are there; then the edge asks again."""

LEFT = "the node ended the stream"
"""The end of a connection that the node has chosen."""

_log = logging.getLogger(__name__)


class ConnectionLost(ConnectionError):
    """The node does not answer, or not any more."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Running:
    """One sequence that a request waits for."""

    submit: Submit
    mailbox: Mailbox
    is_posted: bool = False


class Connection:
    """A Work stream that the node has accepted, and the sequences on it."""

    def __init__(
        self,
        *,
        address: str,
        channel: Any,
        call: Any,
        description: NodeDescription,
        observer: NodeObserver | None = None,
    ) -> None:
        self.description = description
        self.progress_s = time.monotonic()
        """When the node last showed that its step loop turns."""
        self._address = address
        self._observer = observer
        self._call = call
        self._statistics = channel.unary_unary(STATISTICS)
        self._pages = channel.unary_unary(PAGES)
        self._outbox = Outbox(max_bytes=MAX_UNSENT_BYTES)
        self._running: dict[str, _Running] = {}
        self._cut_off: list[Submit] = []
        """What the node has ended because it ends itself."""
        self._serial = count()
        self._last_turn_ns = 0

    @asynccontextmanager
    async def sequence(self, submit: Submit, bell: Bell | None = None) -> AsyncIterator[Mailbox]:
        """Run one sequence on the node; leaving before its end cancels it there."""
        # on the wire its own name: tokens of a cancelled sequence may still be on their way when
        # its request is tried again
        name = f"{submit.request_id}#{next(self._serial)}"

        def post(deliver: Deliver) -> None:
            self._outbox.post(encode(replace(deliver, request_id=name)))

        running = self._running[name] = _Running(submit=submit, mailbox=Mailbox(bell, post=post))
        try:
            await self._outbox.wait_for_room()
            # it may have been given up meanwhile
            if not running.mailbox.is_over:
                self._outbox.post(encode(pack(replace(submit, request_id=name))))
                running.is_posted = True
            yield running.mailbox
        finally:
            self._running.pop(name, None)
            if running.is_posted and not running.mailbox.is_over:
                self._outbox.post(encode(Cancel(request_id=name)))

    def pass_on(self, served: ServedElsewhere) -> None:
        """Tell the node, unless it is too old to know or too slow to be told: the next report says it too."""
        if self.description.version >= SERVICE_EXCHANGE_VERSION and self._outbox.has_room:
            self._outbox.post(encode(served))

    async def statistics(self, timeout_s: float) -> NodeStatistics:
        """Ask the node; raise `ConnectionLost` when it does not answer in time."""
        try:
            statistics = decode_statistics(await self._statistics(b"", timeout=timeout_s))
        except grpc.aio.AioRpcError as error:
            raise ConnectionLost(error.details()) from error
        except msgspec.DecodeError as error:
            raise ConnectionLost(str(error)) from error
        if statistics.loop_turn_ns != self._last_turn_ns:
            self._last_turn_ns = statistics.loop_turn_ns
            self.progress_s = time.monotonic()
        if self._observer is not None:
            self._observer.reported(self._address, statistics)
        return statistics

    async def pages(self, timeout_s: float) -> PageMaps:
        """Ask the node for its pages; raise `ConnectionLost` when it does not answer, or is too old to."""
        try:
            return decode_page_maps(await self._pages(b"", timeout=timeout_s))
        except grpc.aio.AioRpcError as error:
            raise ConnectionLost(error.details()) from error
        except msgspec.DecodeError as error:
            raise ConnectionLost(str(error)) from error

    async def run(self, liveness: Liveness) -> str:
        """Carry messages both ways until the node is lost; return why."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send)
            tasks.start_soon(self._watch, liveness)
            reason = await self._receive()
            tasks.cancel_scope.cancel()
        self._tell_end(reason)
        return reason

    def lose(self) -> None:
        """End every sequence: the node is gone, or this edge leaves it."""
        # what there would be to tell it is dropped
        self._outbox.close()
        self.give_up()

    def give_up(self) -> None:
        """End every sequence, and tell the node, should it ever turn again."""
        for name, running in self._running.items():
            running.mailbox.fail(NodeLost(running.submit.model))
            if running.is_posted:
                self._outbox.post(encode(Cancel(request_id=name)))
        self._running.clear()

    async def _send(self) -> None:
        with suppress(*CALL_IS_OVER):
            while True:
                for frame in split(await self._outbox.take()):
                    await self._call.write(frame)

    async def _receive(self) -> str:
        """Take what the node says until the stream ends; return why it did."""
        try:
            joiner = FrameJoiner()
            while (frame := await self._call.read()) is not grpc.aio.EOF:
                message = joiner.add(frame)
                if message is not None:
                    self._accept(decode_node_message(message))
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        except (MalformedFrame, msgspec.DecodeError) as error:
            return f"the node speaks another language: {error}"
        return LEFT

    async def _watch(self, liveness: Liveness) -> None:
        was_silent = False
        while True:
            await anyio.sleep(liveness.ask_every_s)
            try:
                await self.statistics(liveness.stale_after_s)
            except ConnectionLost as error:
                # whether the node is lost, the stream knows; silence alone makes it unhealthy
                _log.warning("no statistics: %s", error)
            is_silent = time.monotonic() - self.progress_s > liveness.lost_after_s
            if is_silent and (self._running or not was_silent):
                _log.warning("node %s has not turned for too long", self._address)
                self._tell_lost(f"its step loop has not turned for {liveness.lost_after_s:g} s")
                self.give_up()
            was_silent = is_silent

    def _tell_end(self, reason: str) -> None:
        if reason != LEFT:
            self._tell_lost(reason)
        elif self._observer is not None:
            self._observer.left(self._address, self._unfinished())

    def _tell_lost(self, reason: str) -> None:
        if self._observer is not None:
            self._observer.lost(self._address, reason, self._unfinished())

    def _unfinished(self) -> list[Submit]:
        return [*self._cut_off, *(running.submit for running in self._running.values())]

    def _accept(self, message: NodeMessage) -> None:
        match message:
            case Step(sequences=sequences):
                self.progress_s = time.monotonic()
                for tokens in sequences:
                    self._pass_on(tokens)
            case Started() | Reserved():
                if (running := self._running.get(message.request_id)) is not None:
                    running.mailbox.tell(message)
            case Delivered(request_id=name):
                if (delivered := self._running.pop(name, None)) is not None:
                    delivered.mailbox.tell(message)
            case Preempted(request_id=name):
                if (preempted := self._running.pop(name, None)) is not None:
                    preempted.mailbox.fail(SequencePreempted())
            case PrefixChanges():
                if self._observer is not None:
                    self._observer.changed(self._address, self.description, message)
            case Failed(request_id=name):
                failed = self._running.pop(name, None)
                if failed is not None:
                    if message.is_cut_off:
                        self._cut_off.append(failed.submit)
                    failed.mailbox.fail(self._error(message, failed.submit))

    def _pass_on(self, tokens: SequenceTokens) -> None:
        name = tokens.request_id
        running = self._running.get(name)
        if running is None:
            return  # left while these tokens were on their way

        mailbox = running.mailbox
        # before these are added: a node that catches up may send more than that at once
        if mailbox.num_unread_tokens > MAX_UNREAD_TOKENS:
            del self._running[name]
            mailbox.fail(ReaderTooSlow(mailbox.num_unread_tokens))
            self._outbox.post(encode(Cancel(request_id=name)))
            return
        mailbox.add(replace(tokens, request_id=running.submit.request_id))
        if mailbox.is_over:
            del self._running[name]

    def _error(self, failed: Failed, submit: Submit) -> TenantryError:
        match failed.reason:
            case "capacity":
                return CapacityExceeded()
            case "context":
                limits = (
                    member.context_tokens
                    for member in self.description.members
                    if member.model == submit.model
                )
                num_tokens = len(submit.token_ids) + submit.max_tokens
                return ContextExceeded(num_tokens, min(limits, default=0))
            case "cache_integrity":
                return CacheIntegrityError(failed.message)
            case "handoff":
                return HandoffFailed(failed.message)
            case "deadline":
                return RequestTimeout()
            case _:
                return GenerationFailed(f"{failed.reason}: {failed.message}")


@asynccontextmanager
async def open_connection(
    address: str,
    *,
    edge: str,
    liveness: Liveness,
    tls: TlsFiles | None = None,
    observer: NodeObserver | None = None,
) -> AsyncIterator[Connection]:
    """Shake hands and open the Work stream.

    Raise `ConnectionLost` when the node does not answer, `IncompatibleNode` when it refuses.
    """
    options = channel_options(liveness.keepalive_interval_s, liveness.keepalive_timeout_s)
    async with channel_for(address, tls, options=options) as channel:
        description = await _shake_hands(channel, address, edge)
        call = channel.stream_stream(WORK)(
            metadata=((INCARNATION_KEY, str(description.incarnation)),)
        )
        try:
            # the node answers these when it has taken the stream
            await call.initial_metadata()
            if call.done():
                raise ConnectionLost(await call.details())
            connection = Connection(
                address=address,
                channel=channel,
                call=call,
                description=description,
                observer=observer,
            )
            try:
                yield connection
            finally:
                connection.lose()
        finally:
            call.cancel()


async def _shake_hands(channel: Any, address: str, edge: str) -> NodeDescription:
    try:
        description = decode_description(
            await channel.unary_unary(HELLO)(encode(Hello(edge=edge)), timeout=HANDSHAKE_TIMEOUT_S)
        )
    except msgspec.DecodeError as error:
        raise IncompatibleNode(address, f"its handshake is unreadable: {error}") from error
    except grpc.aio.AioRpcError as error:
        if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
            raise IncompatibleNode(address, error.details()) from error
        raise ConnectionLost(error.details()) from error

    if not OLDEST_PROTOCOL_VERSION <= description.version <= PROTOCOL_VERSION:
        raise IncompatibleNode(
            address,
            f"the node chose protocol version {description.version}, this edge speaks "
            f"{OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}",
        )
    return description
