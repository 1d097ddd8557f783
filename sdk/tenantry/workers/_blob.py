"""Bytes with a type, and files: what forms and bodies are made of."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from enum import StrEnum
from typing import TypeAlias

from ._streams import Buffer, ReadableStream, is_bytes


class BlobEnding(StrEnum):
    """What becomes of line ends in text."""

    TRANSPARENT = "transparent"
    """They stay."""
    NATIVE = "native"
    """They become this system's: a line feed."""


class Blob:
    """Bytes that do not change, with a content type; a blob's own type is taken over."""

    __slots__ = ("_bytes", "content_type")

    def __init__(
        self,
        parts: BlobValue | Iterable[BlobValue],
        content_type: str | None = None,
        endings: BlobEnding | str = BlobEnding.TRANSPARENT,
    ) -> None:
        inherited = parts.content_type if isinstance(parts, Blob) else ""
        self.content_type = inherited if content_type is None else content_type.lower()
        native = BlobEnding(endings) is BlobEnding.NATIVE
        each: Iterable[object] = [parts]
        if isinstance(parts, Iterable) and not isinstance(parts, str) and not is_bytes(parts):
            each = parts
        self._bytes = b"".join(_bytes_of(part, native) for part in each)

    content_type: str
    """In lower case; empty where nobody said."""

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self._bytes)

    @property
    def type(self) -> str:
        """The content type, by the web's name."""
        return self.content_type

    @property
    def js_object(self) -> Blob:
        """Return it; projects that ran in Pyodide ask for this."""
        return self

    async def bytes(self) -> bytes:
        """Return the bytes."""
        return self._bytes

    async def text(self) -> str:
        """Return the bytes as UTF-8; what is none is replaced."""
        return self._bytes.decode("utf-8", "replace")

    async def buffer(self) -> Buffer:
        """Return the bytes."""
        return Buffer(self._bytes)

    array_buffer = buffer
    arrayBuffer = buffer

    def slice(
        self, start: int | None = None, end: int | None = None, content_type: str = ""
    ) -> Blob:
        """Return a blob of some of the bytes, counted like those of a Python slice."""
        return Blob(self._bytes[start:end], content_type=content_type)

    def stream(self) -> ReadableStream:
        """Return the bytes as a stream."""
        return ReadableStream(_once(self._bytes), content_type=self.content_type)

    def to_bytes(self) -> Buffer:
        """Return the bytes, at once."""
        return Buffer(self._bytes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, content_type={self.content_type!r})"


class File(Blob):
    """A blob with a name."""

    __slots__ = ("last_modified", "name")

    def __init__(
        self,
        parts: BlobValue | Iterable[BlobValue],
        filename: str,
        content_type: str | None = None,
        endings: BlobEnding | str = BlobEnding.TRANSPARENT,
        last_modified: int | None = None,
    ) -> None:
        super().__init__(parts, content_type, endings)
        self.name = filename
        self.last_modified = int(time.time() * 1000) if last_modified is None else last_modified

    name: str
    last_modified: int
    """Milliseconds of Unix time."""


BlobValue: TypeAlias = str | bytes | bytearray | memoryview | Blob


async def _once(whole: bytes) -> AsyncIterator[bytes]:
    yield whole


def _bytes_of(part: object, native: bool) -> bytes:
    if isinstance(part, Blob):
        return part.to_bytes()
    if isinstance(part, str):
        return (part.replace("\r\n", "\n") if native else part).encode()
    if is_bytes(part):
        return bytes(part)
    raise TypeError(f"a blob is made of str, bytes and blobs, not {type(part).__name__}")
