"""Stopping a hand-off at a chosen moment, and spoiling what it carries."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

import anyio
from msgspec.structs import replace

from tenantry_runtime.pool.messages import SERVICE, PushOpen
from tenantry_runtime.pool.push_frames import (
    Kind,
    PagesBegin,
    open_frame,
    page_frames,
    read_pusher_frame,
)

PUSH = f"/{SERVICE}/Push"


def one_by_one(frame: bytes) -> Iterator[bytes]:
    """Yield a frame for each of a frame's pages; no memory is lent, lest they pass by; others as they are."""
    read = read_pusher_frame(frame)
    if isinstance(read, PushOpen):
        yield open_frame(replace(read, memory=None))
        return
    if not isinstance(read, PagesBegin) or sum(h.num_bytes for h in read.headers) > len(read.part):
        yield frame
        return
    start = 0
    for header in read.headers:
        end = start + header.num_bytes
        yield from page_frames(read.num_ready, [header], [read.part[start:end]])
        start = end


@dataclass(slots=True, eq=False, kw_only=True)
class Hold:
    """Lets frames pass until one of a kind has come so often; holds that one until it is let go.

    Pages pass one by one, however many of them were together.
    """

    kind: Kind
    number: int = 1
    """Of the frame of that kind, from 1, over all hand-offs."""
    is_reached: anyio.Event = field(default_factory=anyio.Event)
    let_go: anyio.Event = field(default_factory=anyio.Event)
    _seen: int = 0

    async def __call__(self, method: str, frame: bytes) -> AsyncIterator[bytes]:
        for each in one_by_one(frame) if method == PUSH else (frame,):
            if method == PUSH and each[0] == self.kind:
                self._seen += 1
                if self._seen == self.number:
                    self.is_reached.set()
                    await self.let_go.wait()
            yield each


Spoil = Callable[[random.Random, bytes], list[bytes]]
"""Makes of a page's frame what arrives instead."""


def flip_a_bit(rng: random.Random, frame: bytes) -> list[bytes]:
    """In the second half, which is the page's own bytes."""
    spoiled = bytearray(frame)
    spoiled[rng.randrange(len(frame) // 2, len(frame))] ^= 1 << rng.randrange(8)
    return [bytes(spoiled)]


def cut_short(_: random.Random, frame: bytes) -> list[bytes]:
    return [frame[: len(frame) // 2]]


def twice(_: random.Random, frame: bytes) -> list[bytes]:
    return [frame, frame]


def lost(_: random.Random, _frame: bytes) -> list[bytes]:
    return []


@dataclass(slots=True, eq=False, kw_only=True)
class Spoiler:
    """Spoils pages at random, by a seed."""

    spoil: Spoil
    share: float
    seed: int
    num_spoiled: int = 0
    num_handoffs: int = 0
    _rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    async def __call__(self, method: str, frame: bytes) -> AsyncIterator[bytes]:
        if method != PUSH:
            yield frame
            return
        self.num_handoffs += frame[0] == Kind.OPEN
        for each in one_by_one(frame):
            if each[0] != Kind.PAGES or self._rng.random() >= self.share:
                yield each
                continue
            self.num_spoiled += 1
            for spoiled in self.spoil(self._rng, each):
                yield spoiled
