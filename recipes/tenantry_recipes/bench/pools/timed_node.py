"""A node whose step loop notes when each step ends, and what it took of a processor: `python -m tenantry_recipes.bench.pools.timed_node CONFIG`.

A reader elsewhere would see when the process that it is in gets its turn. CONFIG is that of a node,
with `TimedConfig` in the place of the engine's configuration.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from tenantry_runtime.pool.__main__ import main
from tenantry_runtime.pool.loop_process import build_engine
from tenantry_runtime.pool.messages import (
    Deliver,
    MemberDescription,
    NodeMessage,
    NodeStatistics,
    ServedElsewhere,
    Step,
    Submit,
)
from tenantry_runtime.pool.page_map import PageMap
from tenantry_runtime.pool.page_port import PagePort
from tenantry_runtime.pool.step_loop import StepLoop, Tell

from .meeting_port import MeetingPort

BUILD = "tenantry_recipes.bench.pools.timed_node:build_timed"

_TIMES = struct.Struct("<dd")


class StepEnd(NamedTuple):
    """When a step was over."""

    at_s: float
    """By a clock of the node's."""
    own_s: float
    """Processor time of the step loop's thread until then."""


class TimedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the step loop is built of."""

    engine: msgspec.Raw
    """`engine.config.NodeConfig`."""
    batch: int
    """Sequences that all have to be in a step which counts; they begin together."""
    batch_pages: int
    """Of each one's hand-off, by which it is told from others."""
    times: str
    """A file, to which the ends of such steps are appended."""


class TimedLoop:
    """A `StepLoop` around another."""

    def __init__(self, loop: StepLoop, batch: int, times: BinaryIO) -> None:
        self._loop = loop
        self._batch = batch
        self._times = times

    def submit(self, submit: Submit) -> None:
        self._loop.submit(submit)

    def deliver(self, deliver: Deliver) -> None:
        self._loop.deliver(deliver)

    def cancel(self, request_id: str) -> None:
        self._loop.cancel(request_id)

    def served_elsewhere(self, served: ServedElsewhere) -> None:
        self._loop.served_elsewhere(served)

    def turn(self, tell_ahead: Tell | None = None) -> Sequence[NodeMessage]:
        messages = self._loop.turn(tell_ahead)
        if self._is_whole(messages):
            self._times.write(_TIMES.pack(time.perf_counter(), time.thread_time()))
        else:
            # before anybody hears that the batch has ended
            self._times.flush()
        return messages

    @property
    def is_idle(self) -> bool:
        return self._loop.is_idle

    def statistics(self) -> NodeStatistics:
        return self._loop.statistics()

    def page_maps(self) -> tuple[PageMap, ...]:
        return self._loop.page_maps()

    def describe(self) -> tuple[MemberDescription, ...]:
        return self._loop.describe()

    def close(self) -> None:
        self._times.close()
        self._loop.close()

    def _is_whole(self, messages: Sequence[NodeMessage]) -> bool:
        """Return whether the batch, and not only what ends with its hand-off, has new tokens."""
        return self._batch == sum(
            tokens.finish is None
            for message in messages
            if isinstance(message, Step)
            for tokens in message.sequences
        )


def build_timed(config: bytes, port: PagePort) -> StepLoop:
    """Make the engine's own step loop, timed."""
    timed = msgspec.json.decode(config, type=TimedConfig)
    meeting = MeetingPort(port, num_handoffs=timed.batch, num_pages=timed.batch_pages)
    return TimedLoop(
        build_engine(bytes(timed.engine), meeting), timed.batch, Path(timed.times).open("wb")
    )


def read_times(path: Path) -> list[StepEnd]:
    """Return the ends of all steps so far."""
    return [StepEnd(*times) for times in _TIMES.iter_unpack(path.read_bytes())]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], build=BUILD))
