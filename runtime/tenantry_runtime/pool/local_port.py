"""Hand-offs between members of one process that have pools of their own.

Pages are copied once, from the cache of one member through the sender's slots into that of the
other; ports find each other by address in an exchange. Nothing is lost on the way, and nothing waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from .messages import HandoffEnd, HandoffTarget, MemberDescription, PageHeader
from .page_port import (
    Channel,
    ChannelLost,
    Confirmed,
    EndCame,
    PageCame,
    PortEvent,
    SourceLost,
    channel_of,
)

NUM_SLOTS = 64
"""Pages of one port on their way: several turns' worth, of two megabytes each where models are large."""


class LocalExchange:
    """The ports of one process, by address."""

    def __init__(self) -> None:
        self._ports: dict[str, LocalPort] = {}

    def port(self, address: str = "", *, num_slots: int = NUM_SLOTS) -> LocalPort:
        """Make the port of an address, in place of an earlier one."""
        port = self._ports[address] = LocalPort(self, num_slots)
        return port

    def forget(self, port: LocalPort) -> None:
        self._ports = {address: each for address, each in self._ports.items() if each is not port}

    def at(self, address: str) -> LocalPort | None:
        return self._ports.get(address)


@dataclass(slots=True, eq=False)
class _Stream:
    """One hand-off, from a channel of its sender to a source of its receiver."""

    sender: LocalPort
    receiver: LocalPort
    channel: Channel
    source: int
    handoff: int
    is_over: bool = False


class LocalPort:
    """A `PagePort`; `LocalExchange.port` makes it."""

    def __init__(self, exchange: LocalExchange, num_slots: int) -> None:
        self._exchange = exchange
        self._free = list(range(num_slots))
        self._numbers = count(1)
        self._sent: dict[Channel, _Stream] = {}
        self._received: dict[int, _Stream] = {}
        self._lent: dict[tuple[int, int], LocalPort] = {}
        """By source and slot of a page that has not been released: whose slot it is."""
        self._events: list[PortEvent] = []
        self._page_bytes = 0

    def allocate(self, page_bytes: int) -> None:
        self._page_bytes = page_bytes

    @property
    def room(self) -> int:
        return len(self._free)

    def room_for(self, _channel: Channel) -> int:
        return self.room

    def open(self, target: HandoffTarget, address: str, source: MemberDescription) -> Channel:
        channel = Channel(next(self._numbers))
        receiver = self._exchange.at(address)
        if receiver is None:
            self._events.append(ChannelLost(channel, f"nobody is at {address!r}"))
            return channel
        number = next(receiver._numbers)
        stream = _Stream(self, receiver, channel, number, target.handoff)
        self._sent[channel] = receiver._received[number] = stream
        return channel

    def push(self, channel: Channel, header: PageHeader, data: memoryview) -> None:
        assert data.nbytes <= self._page_bytes, f"a page of {data.nbytes} bytes"
        stream = self._sent.get(channel)
        if stream is None or stream.is_over:
            return
        slot = self._free.pop()
        receiver = stream.receiver
        receiver._lent[stream.source, slot] = self
        copied = memoryview(bytes(data))
        receiver._events.append(PageCame(header, copied, stream.source, slot))

    def end(self, channel: Channel, end: HandoffEnd) -> None:
        stream = self._sent.get(channel)
        if stream is not None and not stream.is_over:
            stream.receiver._events.append(EndCame(end, stream.source))

    def close(self, channel: Channel) -> None:
        # what has been noted of it and not yet been taken is not an event any more
        self._events = [event for event in self._events if channel_of(event) != channel]
        stream = self._sent.pop(channel, None)
        if stream is not None and not stream.is_over:
            self._finish(stream)
            stream.receiver._events.append(SourceLost(stream.handoff, stream.source))

    def events(self) -> list[PortEvent]:
        taken, self._events = self._events, []
        return taken

    def release(self, pages: Sequence[PageCame]) -> None:
        for page in pages:
            self._lent.pop((page.source, page.slot))._free.append(page.slot)

    def answer(self, source: int, problem: str | None) -> None:
        stream = self._received.get(source)
        if stream is None or stream.is_over:
            return
        self._finish(stream)
        channel = stream.channel
        told = Confirmed(channel) if problem is None else ChannelLost(channel, problem)
        stream.sender._events.append(told)

    def leave(self) -> None:
        """Be gone, as a process is that ends: whoever is at the other end learns of it."""
        for stream in list(self._received.values()):
            self.answer(stream.source, "the receiver is gone")
        for channel in list(self._sent):
            self.close(channel)
        for slot_of, owner in self._lent.items():
            owner._free.append(slot_of[1])
        self._lent.clear()
        self._exchange.forget(self)

    def _finish(self, stream: _Stream) -> None:
        stream.is_over = True
        del stream.receiver._received[stream.source]
        stream.sender._sent.pop(stream.channel, None)
