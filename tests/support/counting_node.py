"""A node process that counts what it generates, on disk: `python -m support.counting_node FILE`.

What a step generates is in the file before anyone is told of it, and stays there when the process is
killed. Around the real step loop, or around one that writes "x" until `max_tokens`.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from support.scripted_node import Script, ScriptedLoop
from tenantry_runtime.core import FinishReason
from tenantry_runtime.pool.__main__ import main
from tenantry_runtime.pool.loop_process import build_engine
from tenantry_runtime.pool.messages import NodeMessage, SequenceTokens, Step, Submit
from tenantry_runtime.pool.page_port import PagePort
from tenantry_runtime.pool.step_loop import StepLoop, Tell

BUILD = "support.counting_node:build_counting_loop"

X = 87
"""The token of "x", in both models' vocabularies."""

TOKENS_PER_STEP = 3


class CountingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the `engine` part of the node's configuration has."""

    counts: str
    """File that lines of request and number of tokens are appended to."""
    script: Script | None = None
    engine: msgspec.Raw = msgspec.Raw(b"null")
    """Of the real step loop, if there is no script."""


class XLoop(ScriptedLoop):
    """Some tokens in each step, and a number of cached ones that depends on the request."""

    def _advance(self, name: str) -> SequenceTokens:
        submit, num_done = self._running[name]
        num_new = min(TOKENS_PER_STEP, submit.max_tokens - num_done)
        is_over = num_done + num_new == submit.max_tokens
        if is_over:
            del self._running[name]
        else:
            self._running[name] = (submit, num_done + num_new)
        return SequenceTokens(
            request_id=name,
            token_ids=(X,) * num_new,
            finish=FinishReason.LENGTH if is_over else None,
            cached_tokens=0 if num_done else _cached(submit),
        )


class CountingLoop:
    """A step loop that counts what another one does."""

    def __init__(self, loop: StepLoop, counts: Path) -> None:
        self._loop = loop
        self._fd = os.open(counts, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    # Any: all else is the loop's own
    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def turn(self, tell_ahead: Tell | None = None) -> Sequence[NodeMessage]:
        messages = self._loop.turn(tell_ahead)
        lines = [
            f"{each.request_id} {len(each.token_ids)}\n"
            for message in messages
            if isinstance(message, Step)
            for each in message.sequences
        ]
        os.write(self._fd, "".join(lines).encode())
        return messages


def generated(files: Iterable[Path]) -> Counter[str]:
    """Return how many tokens nodes have generated of each request, in the attempt that has most."""
    most: Counter[str] = Counter()
    for path in files:
        attempts: Counter[str] = Counter()
        for line in path.read_text().splitlines():
            attempt, count = line.split()
            attempts[attempt] += int(count)
        for attempt, num_tokens in attempts.items():
            # a node has the request's id, and behind it the front's own for the attempt
            request_id = attempt.partition("#")[0]
            most[request_id] = max(most[request_id], num_tokens)
    return most


def _cached(submit: Submit) -> int:
    return zlib.crc32(submit.request_id.encode()) % len(submit.token_ids)


def build_counting_loop(config: bytes, port: PagePort) -> CountingLoop:
    decoded = msgspec.json.decode(config, type=CountingConfig)
    loop: StepLoop
    if decoded.script is not None:
        loop = XLoop(decoded.script)
    else:
        loop = build_engine(bytes(decoded.engine), port)
    return CountingLoop(loop, Path(decoded.counts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], build=BUILD))
