"""All hand-offs of a node: what its ports say goes to the side that it is about."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry_runtime.cache.formats import SERVED_FORMATS
from tenantry_runtime.pool.local_port import LocalExchange
from tenantry_runtime.pool.messages import Deliver
from tenantry_runtime.pool.page_port import (
    ChannelLost,
    Confirmed,
    EndCame,
    PageCame,
    PagePort,
    SourceLost,
)

from .incoming import Incoming
from .lane import Lane
from .outgoing import Outgoing
from .relay import HERE


class Handoffs:
    """Between the members of this node, and where there is a port to other nodes, with theirs."""

    def __init__(self, lanes: Sequence[Lane], *, port: PagePort | None, max_bytes: int) -> None:
        sending = [lane for lane in lanes if lane.hosts("prefill")]
        receiving = [lane for lane in lanes if lane.hosts("decode")]
        self._outgoing = Outgoing(sending, max_bytes=max_bytes)
        self._incoming = Incoming(receiving, max_bytes=max_bytes)
        self._local: PagePort = LocalExchange().port(HERE)
        self._remote = port
        self._ports = (self._local,) if port is None else (self._local, port)
        page_bytes = _largest_page([*sending, *receiving])
        for each in self._ports if page_bytes else ():
            each.allocate(page_bytes)

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
            for event in port.events():
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


def _largest_page(lanes: Sequence[Lane]) -> int:
    sizes = [lane.wire.page_bytes for lane in lanes]
    sizes += [lane.wire.sent_bytes(cache) or 0 for lane in lanes for cache in SERVED_FORMATS]
    return max(sizes, default=0)
