"""All hand-offs of a node: what its ports say goes to the side that it is about."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tenantry_runtime.cache.formats import SERVED_FORMATS
from tenantry_runtime.pool.local_port import LocalExchange
from tenantry_runtime.pool.messages import HERE, Deliver
from tenantry_runtime.pool.page_port import (
    ChannelLost,
    Confirmed,
    EndCame,
    PageCame,
    PagePort,
    SourceLost,
)

from .guarded_port import GuardedPort
from .incoming import Incoming
from .lane import Lane
from .outgoing import Outgoing

_log = logging.getLogger(__name__)


class Handoffs:
    """Between the members of this node, and where there is a port to other nodes, with theirs."""

    def __init__(self, lanes: Sequence[Lane], *, port: PagePort | None, max_bytes: int) -> None:
        sending = [lane for lane in lanes if lane.hosts("prefill")]
        receiving = [lane for lane in lanes if lane.hosts("decode")]
        self._outgoing = Outgoing(sending, max_bytes=max_bytes)
        self._incoming = Incoming(receiving, max_bytes=max_bytes)
        self._local = GuardedPort(LocalExchange().port(HERE))
        self._remote = None if port is None else GuardedPort(port)
        self._ports = (self._local,) if self._remote is None else (self._local, self._remote)
        page_bytes = _largest_page([*sending, *receiving])
        for each in self._ports if page_bytes else ():
            each.allocate(page_bytes)

    @property
    def is_behind(self) -> bool:
        """Whether the next turn has something to take, whatever the ports say till then."""
        return self._incoming.is_behind

    def deliver(self, deliver: Deliver) -> str | None:
        """Send a prompt's pages to an address; return why that cannot be, if it cannot."""
        port = self._local if deliver.address == HERE else self._remote
        if port is None:
            return f"this node reaches no others, and so not {deliver.address!r}"
        self._outgoing.deliver(deliver, port)
        return None

    def take(self, now_s: float) -> bool:
        """Act on what the ports have to say; return whether it was anything."""
        has_heard = False
        for port in self._ports:
            try:
                events = port.events()
            except Exception as error:
                has_heard |= self._lose(port, error)
                continue
            for event in events:
                has_heard = True
                match event:
                    case Confirmed(channel=channel):
                        self._outgoing.confirmed(port, channel)
                    case ChannelLost(channel=channel, problem=problem):
                        self._outgoing.lost(port, channel, problem)
                    case PageCame() | EndCame() | SourceLost():
                        self._incoming.add(port, event)
        return self._incoming.take(now_s) or has_heard

    def push(self, now_s: float) -> bool:
        """Send pages that are ready, up to a turn's bound; return whether there were any."""
        return self._outgoing.push(now_s)

    def _lose(self, port: PagePort, error: Exception) -> bool:
        """Fail all that goes through a port that does not say what becomes of it; False: nothing does."""
        problem = f"the port to other members has failed ({type(error).__name__})"
        has_sent = self._outgoing.lose(port, problem)
        has_received = self._incoming.lose(port, problem)
        if has_sent or has_received:
            _log.error(problem, exc_info=error)
        return has_sent or has_received


def _largest_page(lanes: Sequence[Lane]) -> int:
    sizes = [lane.wire.page_bytes for lane in lanes]
    sizes += [lane.wire.sent_bytes(cache) or 0 for lane in lanes for cache in SERVED_FORMATS]
    return max(sizes, default=0)
