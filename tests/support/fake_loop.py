"""A step loop that counts instead of computing, for tests of the processes around it.

After a prompt that ends with token n come n+1, n+2, ... until a stop token or `max_tokens`.
Configured by the JSON of `FakeLoopConfig`.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import deque

import msgspec

from tenantry_runtime.core import FinishReason
from tenantry_runtime.errors import CapacityExceeded, ConfigurationError, ContextExceeded
from tenantry_runtime.log_lines import about
from tenantry_runtime.pool.messages import (
    Deliver,
    Failed,
    MemberDescription,
    NodeMessage,
    NodeStatistics,
    SequenceTokens,
    ServedElsewhere,
    Step,
    Submit,
    Timings,
)
from tenantry_runtime.pool.page_map import PageMap
from tenantry_runtime.pool.page_port import PagePort
from tenantry_runtime.pool.step_loop import Tell

BUILD = "support.fake_loop:build_fake_loop"

MODEL = "@cf/fake/counter"
CONTEXT_TOKENS = 1 << 40

# a prompt that starts with one of these makes the loop do this instead of counting (FAIL: and say
# so in its log, HANG: after one token, RAISE: in its next turn)
FAIL = 9_000_001
CRASH = 9_000_002
HANG = 9_000_003
RAISE = 9_000_004

_log = logging.getLogger(__name__)


class FakeLoopConfig(msgspec.Struct, frozen=True, kw_only=True):
    step_s: float = 0.001
    """What one step pretends to compute; far below this, no edge keeps up with an endless answer."""
    tokens_per_step: int = 1
    """Of each sequence, more than which no real loop has; fills buffers at little cost."""
    max_running: int = 1_000_000
    problem: str | None = None
    """Refuse to start, with this."""
    fault: str | None = None
    """Fail to start, with this, as a fault in a program does."""
    load_s: float = 0.0


class _Sequence(msgspec.Struct):
    submit: Submit
    num_done: int = 0


class FakeLoop:
    def __init__(self, config: FakeLoopConfig) -> None:
        self._config = config
        self._running: dict[str, _Sequence] = {}
        self._failed: deque[Failed] = deque()
        self._step = 0

    def submit(self, submit: Submit) -> None:
        if len(self._running) >= self._config.max_running:
            raise CapacityExceeded
        num_tokens = len(submit.token_ids) + submit.max_tokens
        if num_tokens > CONTEXT_TOKENS:
            raise ContextExceeded(num_tokens, CONTEXT_TOKENS)
        first = submit.token_ids[0]
        if first == FAIL:
            failed = Failed(request_id=submit.request_id, reason="internal", message="asked to")
            self._failed.append(failed)
            _log.error("asked to fail", extra=about(submit.request_id, submit.traceparent))
        elif first == CRASH:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            self._running[submit.request_id] = _Sequence(submit=submit)

    def cancel(self, request_id: str) -> None:
        self._running.pop(request_id, None)

    def deliver(self, deliver: Deliver) -> None:
        raise AssertionError("it hands nothing over")

    def served_elsewhere(self, message: ServedElsewhere) -> None:
        """It owes nobody a turn."""

    @property
    def is_idle(self) -> bool:
        return not (self._running or self._failed)

    def turn(self, tell_ahead: Tell | None = None) -> list[NodeMessage]:
        messages: list[NodeMessage] = list(self._failed)
        self._failed.clear()
        if self._running:
            if self._config.step_s:
                time.sleep(self._config.step_s)
            self._step += 1
            sequences = [
                self._advance(name, sequence) for name, sequence in list(self._running.items())
            ]
            messages.append(Step(step=self._step, sequences=sequences))
        return messages

    def page_maps(self) -> tuple[PageMap, ...]:
        """Return a map of 64 pages, as many private as there are sequences."""
        num_private = len(self._running)
        marks = bytes([1] * num_private).ljust(64, b"\x00")
        owners = marks.replace(b"\x01", b"\x02")
        return (
            PageMap(
                model=MODEL, phases=("decode",), states=marks, owners=owners, tenants=("acme",)
            ),
        )

    def statistics(self) -> NodeStatistics:
        return NodeStatistics(
            loop_turn_ns=0,
            num_running=len(self._running),
            num_waiting=0,
            num_free_pages={MODEL: 64},
        )

    def describe(self) -> tuple[MemberDescription, ...]:
        return (
            MemberDescription(
                model=MODEL,
                phase="decode",
                weights_format="none",
                cache_format="none",
                page_tokens=64,
                num_pages=64,
                context_tokens=CONTEXT_TOKENS,
                revision="0",
            ),
        )

    def close(self) -> None:
        self._running.clear()

    def _advance(self, name: str, sequence: _Sequence) -> SequenceTokens:
        if sequence.submit.token_ids[0] == RAISE:
            raise RuntimeError("asked to raise")
        if sequence.submit.token_ids[0] == HANG and sequence.num_done == 1:
            signal.pause()
        submit = sequence.submit
        is_first = sequence.num_done == 0
        finish = None
        token_ids: list[int] = []
        while finish is None and len(token_ids) < self._config.tokens_per_step:
            sequence.num_done += 1
            token_ids.append(submit.token_ids[-1] + sequence.num_done)
            if token_ids[-1] in submit.stop_token_ids:
                finish = FinishReason.STOP
            elif sequence.num_done == submit.max_tokens:
                finish = FinishReason.LENGTH
        if finish is not None:
            del self._running[name]
        return SequenceTokens(
            request_id=name,
            token_ids=tuple(token_ids),
            finish=finish,
            cached_tokens=3 if is_first else 0,
            timings=Timings(1, 2, 3, 4, 5) if finish else None,
        )


def build_fake_loop(config: bytes, _port: PagePort) -> FakeLoop:
    decoded = msgspec.json.decode(config, type=FakeLoopConfig)
    time.sleep(decoded.load_s)
    if decoded.problem is not None:
        raise ConfigurationError(decoded.problem)
    if decoded.fault is not None:
        raise RuntimeError(decoded.fault)
    return FakeLoop(decoded)
