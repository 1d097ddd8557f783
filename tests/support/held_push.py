"""Stopping a hand-off at a chosen moment, and spoiling what it carries."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from tenantry_runtime.pool.messages import SERVICE
from tenantry_runtime.pool.push_frames import Kind

PUSH = f"/{SERVICE}/Push"


@dataclass(slots=True, eq=False, kw_only=True)
class Hold:
    """Lets frames pass until one of a kind has come so often; holds that one until it is let go."""

    kind: Kind
    number: int = 1
    """Of the frame of that kind, from 1, over all hand-offs."""
    is_reached: anyio.Event = field(default_factory=anyio.Event)
    let_go: anyio.Event = field(default_factory=anyio.Event)
    _seen: int = 0

    async def __call__(self, method: str, frame: bytes) -> list[bytes]:
        if method == PUSH and frame[0] == self.kind:
            self._seen += 1
            if self._seen == self.number:
                self.is_reached.set()
                await self.let_go.wait()
        return [frame]


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

    async def __call__(self, method: str, frame: bytes) -> list[bytes]:
        if method != PUSH:
            return [frame]
        self.num_handoffs += frame[0] == Kind.OPEN
        if frame[0] != Kind.PAGES or self._rng.random() >= self.share:
            return [frame]
        self.num_spoiled += 1
        return self.spoil(self._rng, frame)
