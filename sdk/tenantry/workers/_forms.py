"""What an HTML form sends: fields and files, and the two ways to write them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias
from urllib.parse import parse_qsl

from ._blob import Blob, File
from ._streams import is_bytes
from ._values import is_list, is_mapping

MAX_PARTS = 10_000
"""Of one form; far above any page's, and far below what fills an isolate."""

FormDataValue: TypeAlias = str | Blob


class FormData:
    """Names and values in their order; a name may come more than once, a value may be a file."""

    __slots__ = ("_fields",)

    def __init__(self, form: FormData | Mapping[str, object] | None = None) -> None:
        self._fields: list[tuple[str, FormDataValue]] = []
        for name, value in form.items() if form is not None else ():
            self.append(name, value)

    def append(self, name: str, value: object, filename: str | None = None) -> None:
        """Add a value next to those of its name; a blob becomes a file called `blob` or `filename`."""
        self._fields.append((str(name), _value(value, filename)))

    def set(self, name: str, value: object, filename: str | None = None) -> None:
        """Put a value in the place of all of its name."""
        fresh = (str(name), _value(value, filename))
        places = [place for place, field in enumerate(self._fields) if field[0] == name]
        if not places:
            self._fields.append(fresh)
            return
        self._fields[places[0]] = fresh
        for place in reversed(places[1:]):
            del self._fields[place]

    def delete(self, name: str) -> None:
        """Remove all of a name; nothing happens if there are none."""
        self._fields = [field for field in self._fields if field[0] != name]

    def get(self, name: str, default: FormDataValue | None = None) -> FormDataValue | None:
        """Return the first value of a name, or `default`."""
        return next((value for each, value in self._fields if each == name), default)

    def get_all(self, name: str) -> list[FormDataValue]:
        """Return every value of a name."""
        return [value for each, value in self._fields if each == name]

    getAll = get_all

    def has(self, name: str) -> bool:
        """Whether there is one of a name."""
        return name in self

    def items(self) -> Iterator[tuple[str, FormDataValue]]:
        """Iterate over names and values."""
        return iter(list(self._fields))

    entries = items

    def keys(self) -> Iterator[str]:
        """Iterate over the names, as often as there are values."""
        return (name for name, _ in self.items())

    def values(self) -> Iterator[FormDataValue]:
        """Iterate over the values."""
        return (value for _, value in self.items())

    @property
    def js_object(self) -> FormData:
        """Return it; projects that ran in Pyodide ask for this."""
        return self

    def __getitem__(self, name: str) -> FormDataValue:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, value: object) -> None:
        self.set(name, value)

    def __delitem__(self, name: str) -> None:
        self.delete(name)

    def __contains__(self, name: object) -> bool:
        return any(each == name for each, _ in self._fields)

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"FormData({self._fields!r})"


def encode_form(form: FormData) -> tuple[bytes, str]:
    """Write a form as multipart/form-data; return the bytes and their content type."""
    boundary = f"----tenantry{os.urandom(16).hex()}"
    pieces: list[bytes] = []
    for name, value in form.items():
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{_quoted(name)}"'
        if isinstance(value, File):
            kind = value.content_type or "application/octet-stream"
            head += f'; filename="{_quoted(value.name)}"\r\nContent-Type: {kind}'
        pieces += [f"{head}\r\n\r\n".encode(), _content(value), b"\r\n"]
    pieces.append(f"--{boundary}--\r\n".encode())
    return b"".join(pieces), f"multipart/form-data; boundary={boundary}"


def decode_form(body: bytes, content_type: str | None) -> FormData:
    """Read a form. Raises `TypeError` for what is no form by its type, `ValueError` for a bad one."""
    kind, parameters = parse_parameters(content_type or "")
    form = FormData()
    if kind == "application/x-www-form-urlencoded":
        pairs = parse_qsl(
            body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_PARTS
        )
        for name, value in pairs:
            form.append(name, value)
    elif kind == "multipart/form-data":
        if not (boundary := parameters.get("boundary")):
            raise TypeError("the content type of a multipart form has no boundary")
        for name, field in _parts(body, boundary.encode()):
            form.append(name, field)
    else:
        raise TypeError(f"a body of type {content_type!r} is no form")
    return form


def parse_parameters(header: str) -> tuple[str, dict[str, str]]:
    """Split a header's value at its semicolons: what it is, in lower case, and its parameters."""
    first, *rest = _split_quoted(header)
    parameters: dict[str, str] = {}
    for each in rest:
        name, _, value = each.partition("=")
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1].replace('\\"', '"').replace("%22", '"')
        parameters.setdefault(name.strip().lower(), value)
    return first.strip().lower(), parameters


_END_OF_VALUE = re.compile(r"[ \t]{0,8}(?:;|$)")


def _split_quoted(header: str) -> list[str]:
    """Split at semicolons outside of quotes.

    curl writes a quote as a backslash and a quote, browsers write a backslash as it is. So a quote behind
    a backslash is the value's own, unless a value can end there.
    """
    parts = [""]
    is_quoted = False
    for place, character in enumerate(header):
        if character == '"':
            is_behind = header[place - 1 : place] == "\\"
            if not is_behind or _END_OF_VALUE.match(header, place + 1):
                is_quoted = not is_quoted
        if character == ";" and not is_quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _parts(body: bytes, boundary: bytes) -> Iterator[tuple[str, FormDataValue]]:
    # RFC 2046: a delimiter is at the beginning of a line; the first has no line before it
    sections = (b"\r\n" + body).split(b"\r\n--" + boundary)
    if len(sections) < 2 or not sections[-1].startswith(b"--"):
        raise ValueError("a multipart body that does not end with its boundary")
    if len(sections) > MAX_PARTS:
        raise ValueError(f"a form of more than {MAX_PARTS} parts")
    for section in sections[1:-1]:
        head, separator, content = section.partition(b"\r\n\r\n")
        if not separator:
            raise ValueError("a part of a multipart body without an end of its headers")
        yield _part(head.decode("utf-8", "replace"), content)


def _part(head: str, content: bytes) -> tuple[str, FormDataValue]:
    headers: dict[str, str] = {}
    for line in head.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    kind, parameters = parse_parameters(headers.get("content-disposition", ""))
    if kind != "form-data" or "name" not in parameters:
        raise ValueError("a part of a multipart form without a name")
    if "filename" not in parameters:
        return parameters["name"], content.decode("utf-8", "replace")
    file_type = headers.get("content-type", "application/octet-stream")
    return parameters["name"], File(content, parameters["filename"], content_type=file_type)


def _value(value: object, filename: str | None) -> FormDataValue:
    if isinstance(value, Blob):
        name = filename or (value.name if isinstance(value, File) else "blob")
        return File(value, name, content_type=value.content_type)
    if filename is not None:
        raise TypeError("only a blob has a filename")
    if value is None or is_bytes(value) or is_list(value) or is_mapping(value):
        raise TypeError(
            f"a form's values are text, numbers and blobs, not {type(value).__name__}; "
            "Blob(...) makes one of bytes"
        )
    return str(value)


def _content(value: FormDataValue) -> bytes:
    return value.encode() if isinstance(value, str) else value.to_bytes()


def _quoted(text: str) -> str:
    # as browsers write what would end the quotes
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
