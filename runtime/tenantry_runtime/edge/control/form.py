"""Reading `multipart/form-data`, strictly and up to limits, piece by piece as it comes.

Whatever is sent, no more is held than `max_bytes` and the headers of `max_parts`, and nothing is
written to a disk.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import anyio
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from tenantry_runtime.edge.body import MAX_DISCARDED_BYTES
from tenantry_runtime.errors import BodyTooLarge, InvalidInput, RequestError, RequestTimeout

MAX_HEADER_BYTES = 2 << 10
MAX_HEADERS = 8
MAX_NAME_CHARS = 512
MAX_OVERHEAD_BYTES = 1 << 20
"""Of delimiters and headers: of thousands of parts."""


_SILENT = logging.Logger(__name__, logging.CRITICAL)
"""Of the parser, which warns of what a client hears of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a form."""

    name: str
    content: bytes
    content_type: str
    """In lower case, without parameters; empty where there was none."""
    filename: str | None


async def read_form(
    request: Request, *, max_bytes: int, max_parts: int, timeout_s: float
) -> dict[str, Part]:
    """Return a form's parts by name, in their order.

    Raises `InvalidInput` for what is no form, `BodyTooLarge`, `RequestTimeout`, and starlette's
    `ClientDisconnect`.
    """
    reader = _FormReader(_boundary(request), max_bytes, max_parts)
    # a client that sends all before it reads would see its connection close instead of the answer
    most = reader.max_body_bytes + MAX_DISCARDED_BYTES
    declared = request.headers.get("content-length", "0")
    if declared.isascii() and declared.isdecimal() and int(declared[:18]) > most:
        raise BodyTooLarge(max_bytes)
    problem: RequestError | None = None
    with anyio.move_on_after(timeout_s) as deadline:
        async for chunk in request.stream():
            if problem is None:
                problem = reader.try_feed(chunk)
            most -= len(chunk)
            if most < 0:
                break
    if deadline.cancelled_caught and problem is None:
        raise RequestTimeout
    if problem is not None:
        raise problem
    return reader.end()


def _boundary(request: Request) -> bytes:
    if request.headers.get("content-encoding", "identity") != "identity":
        raise InvalidInput("content-encoding", "is not supported here")
    kind, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not boundary:
        raise InvalidInput("content-type", "must be multipart/form-data with a boundary")
    return boundary


class _FormReader:
    def __init__(self, boundary: bytes, max_bytes: int, max_parts: int) -> None:
        self.max_body_bytes = max_bytes + MAX_OVERHEAD_BYTES
        self._max_bytes = max_bytes
        self._max_parts = max_parts
        self._parts: dict[str, Part] = {}
        self._headers: dict[bytes, bytes] = {}
        self._field, self._value, self._content = bytearray(), bytearray(), bytearray()
        self._delimiter = b"--" + boundary
        self._opening: bytearray | None = bytearray()
        """What has come, until it is known how the form begins."""
        self._num_read = self._num_kept = 0
        self._has_ended = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": partial(self._add, self._field),
                    "on_header_value": partial(self._add, self._value),
                    "on_header_end": self._end_header,
                    "on_part_data": self._add_content,
                    "on_part_end": self._end,
                    "on_end": self._finish,
                },
                max_header_count=MAX_HEADERS,
                max_header_size=MAX_HEADER_BYTES,
            )
        except FormParserError as error:
            raise InvalidInput("content-type", str(error)) from error
        self._parser.logger = _SILENT

    def try_feed(self, chunk: bytes) -> RequestError | None:
        """Read more of it; return what is wrong with it, and forget what was read."""
        try:
            self._feed(chunk)
        except (InvalidInput, BodyTooLarge) as error:
            self._parts.clear()
            self._content = bytearray()
            return error
        return None

    def _feed(self, chunk: bytes) -> None:
        self._num_read += len(chunk)
        if self._num_read > self.max_body_bytes:
            raise BodyTooLarge(self._max_bytes)
        # the standard lets something follow the end, which means nothing
        if self._has_ended:
            return
        if self._opening is not None:
            self._opening += chunk
            if len(self._opening) < len(self._delimiter):
                return
            # something may come before it too, of which the parser makes more than there is to it
            if not self._opening.startswith(self._delimiter):
                raise InvalidInput("", "the form does not begin with its boundary")
            chunk, self._opening = bytes(self._opening), None
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise InvalidInput("", f"the form is malformed: {error}") from error

    def end(self) -> dict[str, Part]:
        if not self._has_ended:
            raise InvalidInput("", "the form is cut off")
        return self._parts

    def _begin(self) -> None:
        if len(self._parts) >= self._max_parts:
            raise InvalidInput("", f"the form has more than {self._max_parts} parts")
        self._headers.clear()
        self._content = bytearray()

    def _add(self, to: bytearray, data: bytes, start: int, end: int) -> None:
        to += data[start:end]

    def _end_header(self) -> None:
        name = bytes(self._field).lower()
        if name in self._headers:
            raise InvalidInput("", f"a part has two headers {name.decode('latin-1')!r}")
        self._headers[name] = bytes(self._value)
        self._field.clear()
        self._value.clear()

    def _add_content(self, data: bytes, start: int, end: int) -> None:
        self._num_kept += end - start
        if self._num_kept > self._max_bytes:
            raise BodyTooLarge(self._max_bytes)
        self._content += data[start:end]

    def _end(self) -> None:
        part = _part(self._headers, bytes(self._content))
        self._content = bytearray()
        if part.name in self._parts:
            raise InvalidInput(part.name, "comes twice in the form")
        self._parts[part.name] = part

    def _finish(self) -> None:
        self._has_ended = True


def _part(headers: Mapping[bytes, bytes], content: bytes) -> Part:
    if headers.get(b"content-transfer-encoding", b"binary").lower() not in (b"binary", b"8bit"):
        raise InvalidInput("", "a part has a transfer encoding, which forms have no more")
    disposition = headers.get(b"content-disposition", b"").decode("latin-1")
    kind, options = parse_options_header(disposition)
    if kind != b"form-data" or b"name" not in options:
        raise InvalidInput("", "a part of the form has no name")
    content_type, _ = parse_options_header(headers.get(b"content-type", b"").decode("latin-1"))
    filename = options.get(b"filename")
    return Part(
        name=_text(options[b"name"]),
        content=content,
        content_type=content_type.decode("latin-1"),
        filename=None if filename is None else _text(filename),
    )


def _text(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput("", "a part's name is not UTF-8") from error
    if not 0 < len(text) <= MAX_NAME_CHARS:
        raise InvalidInput(
            "", f"a part's name has {len(text)} characters, not 1 to {MAX_NAME_CHARS}"
        )
    return text
