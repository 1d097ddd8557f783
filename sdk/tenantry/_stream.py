"""A streamed answer: one parser without I/O, and an iterator for each client."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Generic, Self, TypeVar

import httpx

from ._accumulator import Accumulator
from ._response import ErrorEntry, make_error, parse_record, read_envelope, request_id
from ._results import Chunk, Completion, Usage
from ._sse import ServerSentEvent, SSEDecoder
from .errors import InvalidResponse, RequestTimeout, StreamTruncated, TenantryError

ParsedT = TypeVar("ParsedT")


class StreamParser:
    """Turns a stream's bytes into chunks and one end: `[DONE]`, or an error.

    Chunks that came before an error are handed out before it is raised.
    """

    def __init__(self, *, request_id: str | None) -> None:
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.is_over = False
        self.is_whole = False
        self.answer = Accumulator()
        self._request_id = request_id
        self._events = SSEDecoder()
        self._ready: deque[Chunk] = deque()
        self._error: TenantryError | None = None

    def feed(self, received: bytes) -> None:
        for event in self._events.feed(received):
            if self.is_over:
                return
            try:
                self._take(event)
            except InvalidResponse as error:
                self.fail(error)

    def fail(self, error: TenantryError) -> None:
        """End the stream with an error, unless it has ended already."""
        if not self.is_over:
            self.is_over = True
            self._error = error

    def end_of_body(self) -> None:
        self.fail(
            StreamTruncated(
                "the stream ended before the answer was whole", request_id=self._request_id
            )
        )

    def break_off(self, error: httpx.RequestError) -> None:
        """End the stream with what the transport met."""
        reason = str(error) or type(error).__name__
        typed: TenantryError
        match error:
            case httpx.TimeoutException():
                typed = RequestTimeout(
                    f"the stream was silent for longer than the timeout ({reason})",
                    request_id=self._request_id,
                )
            case httpx.DecodingError():
                typed = InvalidResponse(
                    f"the stream cannot be decoded: {reason}", request_id=self._request_id
                )
            case _:
                typed = StreamTruncated(
                    f"the stream broke before the answer was whole: {reason}",
                    request_id=self._request_id,
                )
        typed.__cause__ = error
        self.fail(typed)

    def completion(self) -> Completion:
        """Return the answer, which has come to its end."""
        if not self.is_whole:
            raise StreamTruncated(
                "the stream was closed before the answer was whole", request_id=self._request_id
            )
        return self.answer.completion()

    def close(self) -> None:
        """End the stream where it is: the caller wants no more of it."""
        self.is_over = True
        self._ready.clear()
        self._error = None

    def next_chunk(self) -> Chunk | None:
        """Hand out a chunk that is there, or raise the error that ended the stream, once."""
        if self._ready:
            return self._ready.popleft()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return None

    def _take(self, event: ServerSentEvent) -> None:
        if event.data == b"[DONE]":
            self.is_over = self.is_whole = True
            return
        # the search spares nearly every chunk a second decoding
        if event.name == "error" or b'"error' in event.data:
            envelope = read_envelope(event.data)
            entries = envelope.entries if envelope else []
            if event.name == "error" and not entries:
                entries = [ErrorEntry(message=event.data.decode("utf-8", "replace"))]
            if entries:
                self.fail(make_error(entries, status=None, request_id=self._request_id))
                return
        chunk = parse_record(event.data, Chunk, request_id=self._request_id)
        self.usage = chunk.usage or self.usage
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self.answer.add(chunk)
        self._ready.append(chunk)


class Stream:
    """Chunks of one answer, as they are made; leaving it ends the generation on the server.

        with ai.run(model, inputs, stream=True) as stream:
            for chunk in stream:
                print(chunk.text, end="", flush=True)

    It closes at its end, at an error, when the `with` block is left, or by `close()`. Iteration
    ends only when the answer is whole; otherwise it raises, at the latest `StreamTruncated`.
    """

    def __init__(self, response: httpx.Response) -> None:
        self.request_id = request_id(response.headers)
        self._response = response
        self._bytes = response.iter_bytes()
        self._parser = StreamParser(request_id=self.request_id)

    request_id: str | None
    """What the server calls this request."""

    @property
    def usage(self) -> Usage | None:
        """Tokens of the request; known once the answer is whole."""
        return self._parser.usage

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended; None before it has."""
        return self._parser.finish_reason

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        while (chunk := self._parser.next_chunk()) is None:
            if self._parser.is_over:
                raise StopIteration
            self._receive()
        return chunk

    def completion(self) -> Completion:
        """Read what is left, and return the whole answer, as if it had not been streamed."""
        for _ in self:
            pass
        return self._parser.completion()

    def _receive(self) -> None:
        try:
            received = next(self._bytes, None)
            if received is None:
                self._parser.end_of_body()
            else:
                self._parser.feed(received)
        except httpx.RequestError as error:
            self._parser.break_off(error)
        if self._parser.is_over:
            self._response.close()

    def close(self) -> None:
        """Stop here. May be called again."""
        self._parser.close()
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class ParsedStream(Stream, Generic[ParsedT]):
    """A stream whose answer is JSON of a type.

    with ai.run(model, inputs, response_format=City, stream=True) as stream:
        for chunk in stream:
            print(chunk.text, end="", flush=True)
        city = stream.parsed()
    """

    def __init__(self, response: httpx.Response, type: type[ParsedT]) -> None:
        super().__init__(response)
        self._type = type

    def parsed(self) -> ParsedT:
        """Read what is left, and return what the whole answer says."""
        return self.completion().parse(self._type)


class AsyncStream:
    """Chunks of one answer, as they are made; leaving it ends the generation on the server.

        async with await ai.run(model, inputs, stream=True) as stream:
            async for chunk in stream:
                print(chunk.text, end="", flush=True)

    It closes at its end, at an error, when the `async with` block is left, or by `aclose()`.
    Iteration ends only when the answer is whole; otherwise it raises, at the latest
    `StreamTruncated`.
    """

    def __init__(self, response: httpx.Response) -> None:
        self.request_id = request_id(response.headers)
        self._response = response
        self._bytes = response.aiter_bytes()
        self._parser = StreamParser(request_id=self.request_id)

    request_id: str | None
    """What the server calls this request."""

    @property
    def usage(self) -> Usage | None:
        """Tokens of the request; known once the answer is whole."""
        return self._parser.usage

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended; None before it has."""
        return self._parser.finish_reason

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        while (chunk := self._parser.next_chunk()) is None:
            if self._parser.is_over:
                raise StopAsyncIteration
            await self._receive()
        return chunk

    async def completion(self) -> Completion:
        """Read what is left, and return the whole answer, as if it had not been streamed."""
        async for _ in self:
            pass
        return self._parser.completion()

    async def _receive(self) -> None:
        try:
            received = await anext(self._bytes, None)
            if received is None:
                self._parser.end_of_body()
            else:
                self._parser.feed(received)
        except httpx.RequestError as error:
            self._parser.break_off(error)
        if self._parser.is_over:
            await self._response.aclose()

    async def aclose(self) -> None:
        """Stop here. May be called again."""
        self._parser.close()
        await self._response.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class AsyncParsedStream(AsyncStream, Generic[ParsedT]):
    """A stream whose answer is JSON of a type.

    async with await ai.run(model, inputs, response_format=City, stream=True) as stream:
        async for chunk in stream:
            print(chunk.text, end="", flush=True)
        city = await stream.parsed()
    """

    def __init__(self, response: httpx.Response, type: type[ParsedT]) -> None:
        super().__init__(response)
        self._type = type

    async def parsed(self) -> ParsedT:
        """Read what is left, and return what the whole answer says."""
        return (await self.completion()).parse(self._type)
