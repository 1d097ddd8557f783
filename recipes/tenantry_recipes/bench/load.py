"""A closed loop: so many clients, each of which sends its next request when it has its answer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import anyio

from .stream_client import StreamedAnswer, StreamRequest, ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What came of it."""

    started_s: float
    """Of `time.perf_counter`."""
    total_s: float
    answers: tuple[StreamedAnswer, ...]
    """In the order of their requests."""

    @property
    def tokens_per_s(self) -> float:
        return sum(answer.completion_tokens for answer in self.answers) / self.total_s

    @property
    def first_text_s(self) -> float:
        """The median over all answers."""
        return statistics.median(answer.first_text_s for answer in self.answers)


async def closed_loop(requests: Sequence[StreamRequest], num_clients: int) -> Load:
    """Send all requests; raise `BenchmarkError` if one of them fails."""
    answers: dict[int, StreamedAnswer] = {}
    waiting = iter(enumerate(requests))
    started_s = time.perf_counter()
    async with anyio.create_task_group() as clients:
        for _ in range(num_clients):
            clients.start_soon(_send_in_turn, waiting, answers)
    return Load(
        started_s=started_s,
        total_s=time.perf_counter() - started_s,
        answers=tuple(answers[number] for number in range(len(requests))),
    )


async def _send_in_turn(
    waiting: Iterator[tuple[int, StreamRequest]], answers: dict[int, StreamedAnswer]
) -> None:
    # one iterator for all clients: whoever is free takes the next
    for number, request in waiting:
        answers[number] = await ask(request)
