"""Bodies: what one may be made of, and what one can be read as."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Iterator
from typing import Any, TypeAlias, cast

from ._blob import Blob
from ._forms import FormData, decode_form, encode_form
from ._headers import Headers
from ._host import Body as HostBody
from ._streams import BODY_USED, Buffer, ReadableStream, is_bytes

Body: TypeAlias = (
    str
    | bytes
    | bytearray
    | memoryview
    | Blob
    | FormData
    | ReadableStream
    | AsyncIterable[bytes | str]
    | Iterator[bytes | str]
)
"""What a body may be made of. Pieces are sent as they come; text is UTF-8."""


# in a class that has a method of that name, `bytes` is the method
Bytes: TypeAlias = bytes


def make_body(body: object, *, where: str) -> tuple[bytes | ReadableStream | None, str]:
    """Turn what a user gives into bytes or a stream, and its content type.

    Raises `TypeError` that names `where` for what is no body.
    """
    match body:
        case None:
            return None, ""
        case str():
            return body.encode(), "text/plain;charset=UTF-8"
        case _ if is_bytes(body):
            return bytes(body), ""
        case ReadableStream():
            kind = body.content_type
            # what is left of one that has been read from is a stream of its own
            return (ReadableStream(body.take(), content_type=kind) if body.used else body), kind
        case FormData():
            return encode_form(body)
        case Blob():
            return body.to_bytes().to_bytes(), body.content_type
        case AsyncIterable() | Iterator():
            return ReadableStream(cast("AsyncIterable[bytes | str]", body)), ""
        case _:
            raise TypeError(f"Unsupported type in {where}: {type(body).__name__}")


def received_body(body: HostBody) -> bytes | ReadableStream | None:
    """Take a body that the host has."""
    if body is None or isinstance(body, bytes):
        return body
    return ReadableStream(body)


class HasBody:
    """Headers and a body that is read once; a second reading raises `OSError`."""

    __slots__ = ("_body", "_headers", "_is_used")

    def __init__(self, headers: Headers, body: bytes | ReadableStream | None) -> None:
        self._headers = headers
        self._body = body
        self._is_used = False

    @property
    def headers(self) -> Headers:
        """Its headers."""
        return self._headers

    @property
    def body(self) -> ReadableStream | None:
        """Its body as a stream, which can be read, or be the body of something else, once."""
        if isinstance(self._body, bytes):
            whole, kind = self._body, self._headers.get("content-type", "")
            self._body = ReadableStream(whole, content_type=kind)
        return self._body

    @property
    def body_used(self) -> bool:
        """Whether the body has been read or handed on."""
        return self._is_used or (isinstance(self._body, ReadableStream) and self._body.used)

    bodyUsed = body_used

    async def bytes(self) -> Bytes:
        """Return the body."""
        return await self._read()

    async def buffer(self) -> Buffer:
        """Return the body, as bytes that also answer to the names of JavaScript's buffers."""
        return Buffer(await self._read())

    array_buffer = buffer
    arrayBuffer = buffer

    async def text(self) -> str:
        """Return the body as UTF-8; what is none is replaced."""
        return (await self._read()).decode("utf-8", "replace")

    async def blob(self) -> Blob:
        """Return the body as a blob of its content type."""
        return Blob(await self._read(), content_type=self._headers.get("content-type", ""))

    async def form_data(self) -> FormData:
        """Return the body as a form; `TypeError` if it is none, `ValueError` if it is a bad one."""
        return decode_form(await self._read(), self._headers.get("content-type"))

    formData = form_data

    def take_body(self) -> Bytes | ReadableStream | None:
        """Hand the body on; `OSError` if it has been read."""
        self._raise_if_used()
        self._is_used = self._body is not None
        return self._body

    def peek_body(self) -> Bytes | ReadableStream | None:
        """Split the body, as a clone does; `OSError` if it has been read."""
        self._raise_if_used()
        if isinstance(self._body, ReadableStream):
            self._body, other = self._body.tee()
            return other
        return self._body

    async def _read_json(self, **options: Any) -> Any:
        return json.loads(await self._read(), **options)

    async def _read(self) -> Bytes:
        body = self.take_body()
        if body is None:
            return b""
        return await body.read() if isinstance(body, ReadableStream) else body

    def _raise_if_used(self) -> None:
        if self.body_used:
            raise OSError(BODY_USED)


def host_body(body: bytes | ReadableStream | None) -> HostBody:
    """Give a body to the host: a stream of its own untouched."""
    if not isinstance(body, ReadableStream):
        return body
    whole = body.take_whole()
    return body.take() if whole is None else whole
