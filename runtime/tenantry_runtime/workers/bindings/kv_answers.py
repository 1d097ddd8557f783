"""What a namespace has, as workers get it: values of a type, metadata, pages of keys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from tenantry_runtime.tenancy.kv import Entry, KeyPage
from tenantry_runtime.workers.byte_streams import MAX_VALUE_BYTES, BytesStream
from tenantry_runtime.workers.interface import ByteStream, CallRefused, HttpResponse, StreamResult

METADATA_HEADER = "cf-kv-metadata"
"""JSON, in ASCII."""

CONTENT_TYPES = {
    "text": "text/plain",
    "json": "application/json",
    "arrayBuffer": "application/octet-stream",
    "stream": "application/octet-stream",
}
JSON = CONTENT_TYPES["json"]

_any = msgspec.json.Decoder()


def streamed(
    stream: ByteStream, entry: Entry, type_: str, with_metadata: bool
) -> HttpResponse | StreamResult:
    """Return a value as a stream; with its metadata, as a response."""
    content_type = CONTENT_TYPES[type_]
    if not with_metadata:
        return StreamResult(stream=stream, content_type=content_type)
    # ASCII, as `json` prints unless told otherwise
    metadata = json.dumps(metadata_of(entry.metadata))
    headers = [("content-type", content_type), (METADATA_HEADER, metadata)]
    return HttpResponse(status=200, headers=headers, body=stream)


def several(
    keys: Sequence[str], found: Mapping[str, Entry], type_: str, with_metadata: bool
) -> object:
    """Return values by their keys, None for what is not there; a stream of JSON, if they are long."""
    answer: dict[str, object] = {}
    for key in keys:
        entry = found.get(key)
        value = None if entry is None else decoded(entry.value, type_)
        if not with_metadata:
            answer[key] = value
        elif entry is None:
            answer[key] = None
        else:
            answer[key] = {"value": value, "metadata": metadata_of(entry.metadata)}
    printed = msgspec.json.encode(answer)
    if len(printed) > MAX_VALUE_BYTES or not fits(answer):
        return StreamResult(stream=BytesStream(printed), content_type=JSON)
    return answer


def decoded(value: bytes, type_: str) -> object:
    """Return a value as a type. Raises `CallRefused` where it is none of that type."""
    match type_:
        case "text":
            return value.decode("utf-8", "replace")
        case "json":
            try:
                return _any.decode(value)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise CallRefused("ValueError", f"the value is no JSON: {error}") from error
        case _:
            return value


def fits(value: object) -> bool:
    """Say whether a frame can carry a value of JSON, whose numbers may be longer than 64 bits."""
    try:
        msgspec.msgpack.encode(value)
    except (OverflowError, RecursionError):
        return False
    return True


def metadata_of(printed: bytes | None) -> object:
    """Return metadata, None where there is none."""
    return None if printed is None else _any.decode(printed)


def page_of(page: KeyPage) -> dict[str, object]:
    """Return a page as Cloudflare's `list` does."""
    keys: list[dict[str, object]] = []
    for key in page.keys:
        each: dict[str, object] = {"name": key.name}
        if key.expires_ms is not None:
            each["expiration"] = key.expires_ms // 1000
        if key.metadata is not None:
            each["metadata"] = metadata_of(key.metadata)
        keys.append(each)
    listed: dict[str, object] = {
        "keys": keys,
        "list_complete": page.cursor is None,
        "cacheStatus": None,
    }
    if page.cursor is not None:
        listed["cursor"] = page.cursor
    return listed
