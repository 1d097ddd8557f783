"""The two clients behind one face, so that one test holds both to the same behavior."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import httpx

from tenantry import AI, AsyncAI, Chunk, Completion, MockTransport, Model

Kind: TypeAlias = Literal["blocking", "asynchronous"]
KINDS: tuple[Kind, ...] = ("blocking", "asynchronous")


class Caller(Protocol):
    """A client that does not wait between tries, but notes for how long it should have."""

    waits_s: list[float]

    async def run(self, model: str, inputs: Mapping[str, Any], **options: Any) -> Completion: ...

    async def stream(self, model: str, inputs: Mapping[str, Any], **options: Any) -> list[Chunk]:
        """Return all chunks of a stream."""
        ...

    async def models(self) -> list[Model]: ...


class BlockingCaller:
    def __init__(self, **options: Any) -> None:
        self.waits_s: list[float] = []
        self._ai = AI(sleep=self.waits_s.append, **options)

    async def run(self, model: str, inputs: Mapping[str, Any], **options: Any) -> Completion:
        completion: Completion = self._ai.run(model, inputs, **options)
        return completion

    async def stream(self, model: str, inputs: Mapping[str, Any], **options: Any) -> list[Chunk]:
        with self._ai.run(model, inputs, stream=True, **options) as stream:
            return list(stream)

    async def models(self) -> list[Model]:
        return self._ai.models()


class AsynchronousCaller:
    def __init__(self, **options: Any) -> None:
        self.waits_s: list[float] = []
        self._ai = AsyncAI(sleep=self._sleep, **options)

    async def _sleep(self, wait_s: float) -> None:
        self.waits_s.append(wait_s)

    async def run(self, model: str, inputs: Mapping[str, Any], **options: Any) -> Completion:
        completion: Completion = await self._ai.run(model, inputs, **options)
        return completion

    async def stream(self, model: str, inputs: Mapping[str, Any], **options: Any) -> list[Chunk]:
        async with await self._ai.run(model, inputs, stream=True, **options) as stream:
            return [chunk async for chunk in stream]

    async def models(self) -> list[Model]:
        return await self._ai.models()


def a_caller(
    kind: Kind, handler: Callable[[httpx.Request], httpx.Response], **options: Any
) -> Caller:
    options = {"transport": MockTransport(handler), **options}
    return BlockingCaller(**options) if kind == "blocking" else AsynchronousCaller(**options)
