"""A node that is a whole engine in this thread: what it says crosses the wire's codecs."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel

from support.token_source import FakeTokenSource, WholeSequence
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.errors import GenerationFailed
from tenantry_runtime.pool.bell import Bell
from tenantry_runtime.pool.interface import RunningSequence
from tenantry_runtime.pool.messages import Cancel, Failed, SequenceTokens, Step, Submit
from tenantry_runtime.pool.wire import (
    PackedSubmit,
    decode_node_message,
    decode_work,
    encode,
    pack,
    unpack,
)


class EngineSource(FakeTokenSource):
    """A `TokenSource`. Whoever waits for tokens turns the loop."""

    def __init__(self, loop: EngineLoop) -> None:
        super().__init__()
        self.loop = loop
        self._said: dict[str, deque[SequenceTokens | Failed]] = defaultdict(deque)

    @asynccontextmanager
    async def generate(
        self, submit: Submit, bell: Bell | None = None
    ) -> AsyncIterator[RunningSequence]:
        self.submits.append(submit)
        packed = decode_work(encode(pack(submit)))
        assert isinstance(packed, PackedSubmit)
        self.loop.submit(unpack(packed))
        try:
            yield WholeSequence(self._read(submit.request_id))
        finally:
            cancel = decode_work(encode(Cancel(request_id=submit.request_id)))
            assert isinstance(cancel, Cancel)
            self.loop.cancel(cancel.request_id)

    async def _read(self, request_id: str) -> AsyncIterator[SequenceTokens]:
        said = self._said[request_id]
        while True:
            while not said:
                await anyio.lowlevel.checkpoint()
                self._turn()
            tokens = said.popleft()
            if isinstance(tokens, Failed):
                raise GenerationFailed(tokens.message)
            yield tokens

    def _turn(self) -> None:
        for message in self.loop.turn():
            match decode_node_message(encode(message)):
                case Step(sequences=sequences):
                    for tokens in sequences:
                        self._said[tokens.request_id].append(tokens)
                case Failed() as failed:
                    self._said[failed.request_id].append(failed)
