"""The node's gRPC calls, as generic handlers over MessagePack."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import grpc
import msgspec
from msgspec.structs import replace

from .dispatch import Dispatch, EdgeStream
from .drain import Drain
from .frames import FrameJoiner, MalformedFrame, split
from .grpc_options import INCARNATION_KEY
from .loop_link import LoopLink
from .messages import (
    OLDEST_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    SERVICE,
    Cancel,
    Deliver,
    Hello,
    MemberDescription,
    NodeDescription,
    NodeStatistics,
    ServedElsewhere,
)
from .page_map import MIN_INTERVAL_S, AskPages, PageMaps
from .push_receiver import PushReceiver
from .wire import PackedSubmit, decode_hello, decode_work, encode

PAGES_TIMEOUT_S = 5.0
"""For a step loop to finish its turn, and then a map."""

_log = logging.getLogger(__name__)


class VersionMismatch(ValueError):
    """Edge and node have no protocol version in common."""


class NodeService:
    """Answers edges on behalf of one step loop."""

    def __init__(
        self,
        *,
        dispatch: Dispatch,
        link: LoopLink,
        receiver: PushReceiver,
        drain: Drain,
        incarnation: int,
        reached_at: str = "",
    ) -> None:
        self._dispatch = dispatch
        self._link = link
        self._receiver = receiver
        self._drain = drain
        self._incarnation = incarnation
        self._reached_at = reached_at
        self._members: tuple[MemberDescription, ...] = ()
        self._statistics: NodeStatistics | None = None
        self._is_settled = anyio.Event()
        """Whether there will be members: set with them, or when the node ends."""
        self._maps: PageMaps | None = None
        self._asked_pages_s = -MIN_INTERVAL_S
        self._maps_came = anyio.Event()
        """Not set while the step loop has been asked and has not answered."""
        self._maps_came.set()

    # grpc has no types: handlers and contexts are Any from here on
    def handler(self) -> Any:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Hello": grpc.unary_unary_rpc_method_handler(self.hello),
                "Work": grpc.stream_stream_rpc_method_handler(self.work),
                "Push": grpc.stream_stream_rpc_method_handler(self._receiver.push),
                "Statistics": grpc.unary_unary_rpc_method_handler(self.statistics),
                "Pages": grpc.unary_unary_rpc_method_handler(self.pages),
                "Drain": grpc.unary_unary_rpc_method_handler(self.drain),
            },
        )

    def open(self, members: tuple[MemberDescription, ...]) -> None:
        """Answer handshakes from now on."""
        self._members = members
        self._is_settled.set()

    def close(self) -> None:
        """Answer all who wait, for the node ends."""
        self._is_settled.set()
        self._maps_came.set()

    def note(self, statistics: NodeStatistics) -> None:
        self._statistics = replace(statistics, incarnation=self._incarnation)

    async def hello(self, request: bytes, context: Any) -> bytes:
        try:
            version = agreed_version(decode_hello(request))
        except (msgspec.DecodeError, VersionMismatch) as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise  # `abort` has raised already

        # an edge that asks while the members load is answered as soon as they are there
        await self._is_settled.wait()
        if not self._members:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the node ends before it was ready")
        return encode(
            NodeDescription(
                version=version,
                incarnation=self._incarnation,
                members=self._members,
                address=self._reached_at,
            )
        )

    async def statistics(self, _request: bytes, context: Any) -> bytes:
        statistics = self._statistics
        if statistics is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the step loop is starting")
            raise AssertionError("`abort` raises")
        if self._drain.is_begun:
            statistics = replace(statistics, is_draining=True)
        return encode(statistics)

    def note_pages(self, maps: PageMaps) -> None:
        self._maps = maps
        self._maps_came.set()

    async def pages(self, _request: bytes, context: Any) -> bytes:
        now_s = anyio.current_time()
        is_asked = not self._maps_came.is_set()
        # a turn may take longer than the interval: whoever waits for its answer gets it
        if now_s - self._asked_pages_s >= (PAGES_TIMEOUT_S if is_asked else MIN_INTERVAL_S):
            self._asked_pages_s = now_s
            if not is_asked:
                self._maps_came = anyio.Event()
            self._link.post(AskPages())
        with anyio.move_on_after(PAGES_TIMEOUT_S):
            await self._maps_came.wait()
        if self._maps is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the step loop does not answer")
            raise AssertionError("`abort` raises")
        return encode(self._maps)

    async def drain(self, _request: bytes, _context: Any) -> bytes:
        _log.info("stopping as an operator asked")
        self._drain.begin()
        return b""

    async def work(self, _requests: object, context: Any) -> None:
        named = dict(context.invocation_metadata()).get(INCARNATION_KEY)
        if named != str(self._incarnation):
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"this is incarnation {self._incarnation} of the node, not {named}",
            )

        stream = self._dispatch.open()
        problem: str | None = None
        try:
            await context.send_initial_metadata(())
            async with anyio.create_task_group() as tasks:

                async def send() -> None:
                    await self._send(stream, context)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(send)
                problem = await self._receive(stream, context)
                tasks.cancel_scope.cancel()
        finally:
            # however the edge went: nobody waits for its sequences any more
            for cancel in self._dispatch.close(stream):
                self._link.post(cancel)
        if problem is not None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        if stream.failure is not None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, stream.failure)

    async def _send(self, stream: EdgeStream, context: Any) -> None:
        """Return when the edge has all that it is owed, or is gone."""
        try:
            while messages := await stream.take():
                for message in messages:
                    for frame in split(encode(message)):
                        await context.write(frame)
        except grpc.aio.InternalError as error:
            _log.info("an edge is gone: %s", error)

    async def _receive(self, stream: EdgeStream, context: Any) -> str | None:
        """Return when the edge has said its last, or what was wrong with it."""
        joiner = FrameJoiner()
        while (frame := await context.read()) is not grpc.aio.EOF:
            try:
                message = joiner.add(frame)
                if message is not None:
                    await self._obey(stream, message)
            except (MalformedFrame, msgspec.DecodeError) as error:
                _log.error("an edge speaks another language: %s", error)
                return str(error)
        return None

    async def _obey(self, stream: EdgeStream, message: bytes) -> None:
        match decode_work(message):
            case PackedSubmit() as submit:
                await stream.wait_for_room()
                await self._link.wait_for_room()
                if self._drain.is_begun:
                    problem = "the node is draining"
                    self._dispatch.refuse(stream, submit.request_id, problem)
                else:
                    self._link.post(self._dispatch.admit(stream, submit))
            case Deliver() as deliver:
                await self._link.wait_for_room()
                directed = self._dispatch.direct(stream, deliver)
                if directed is not None:
                    self._link.post(directed)
            case Cancel(request_id=request_id):
                cancel = self._dispatch.cancel(stream, request_id)
                if cancel is not None:
                    self._link.post(cancel)
            case ServedElsewhere(incarnation=incarnation) as served:
                # an edge that knows the node by two addresses passes on its own reports
                if incarnation != self._incarnation:
                    await self._link.wait_for_room()
                    self._link.post(served)


def agreed_version(edge: Hello) -> int:
    """The newest version that both sides speak; raise `VersionMismatch` when there is none."""
    version = min(edge.version, PROTOCOL_VERSION)
    if version < max(edge.oldest_version, OLDEST_PROTOCOL_VERSION):
        raise VersionMismatch(
            f"the node speaks protocol versions {OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}, "
            f"edge {edge.edge!r} speaks {edge.oldest_version} to {edge.version}"
        )
    return version
