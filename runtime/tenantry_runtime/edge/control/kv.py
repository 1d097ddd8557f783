"""KV namespaces, their keys and values. In paths, a namespace's title stands for its id where no id is that."""

from __future__ import annotations

import base64
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from starlette.responses import Response

from tenantry_runtime.errors import InvalidInput, NoSuchRecord
from tenantry_runtime.tenancy.kv import (
    MAX_LIST_KEYS,
    MAX_NAMESPACES,
    Entry,
    Key,
    LongEntry,
    Namespace,
)
from tenantry_runtime.tenancy.kv_entry import MAX_METADATA_BYTES, MAX_VALUE_BYTES, Write, a_write

from .call import Call, page_info, page_of, success
from .form import read_form
from .long_value import LongValue

MAX_BULK_BYTES = 100 << 20
"""Of a bulk write, as Cloudflare has it."""

MAX_BULK_DELETE_BYTES = 16 << 20
"""10,000 keys of 512 bytes, however JSON writes them."""

MAX_SHORT_BYTES = 256 << 10
"""A longer value is read when there is a place for it."""

METADATA_SLACK_BYTES = 4 << 10
"""Whitespace of JSON."""


class NamespaceInput(msgspec.Struct, frozen=True, kw_only=True):
    title: str


class KeyValueInput(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    value: str
    # Any: any JSON
    metadata: Any = None
    expiration: int | None = None
    expiration_ttl: int | None = None
    base64: bool = False


class KeysInput(msgspec.Struct, frozen=True, kw_only=True):
    keys: tuple[str, ...]
    type: str = "text"
    # as it is spelled there
    with_metadata: bool = msgspec.field(default=False, name="withMetadata")


async def list_namespaces(call: Call) -> Response:
    """List namespaces, a page at a time."""
    page, per_page = page_of(call)
    found, total = await call.services.kv.list_namespaces(call.account, limit=MAX_NAMESPACES)
    if call.request.query_params.get("order") == "title":
        is_descending = call.request.query_params.get("direction") == "desc"
        found = sorted(found, key=lambda each: each.title, reverse=is_descending)
    shown = [_namespace(each) for each in found[(page - 1) * per_page : page * per_page]]
    return success(shown, info=page_info(page, per_page, len(shown), total))


async def post_namespace(call: Call) -> Response:
    """Create a namespace."""
    asked = await call.json(NamespaceInput)
    return success(_namespace(await call.services.kv.create_namespace(call.account, asked.title)))


async def show_namespace(call: Call) -> Response:
    """Show a namespace."""
    return success(_namespace(await _found(call)))


async def put_namespace(call: Call) -> Response:
    """Give a namespace another title."""
    asked = await call.json(NamespaceInput)
    namespace_id = await _id(call)
    await call.services.kv.rename_namespace(call.account, namespace_id, asked.title)
    return success(_namespace(await call.services.kv.namespace(call.account, namespace_id)))


async def delete_namespace(call: Call) -> Response:
    """Delete a namespace with all its keys."""
    await call.services.kv.delete_namespace(call.account, await _id(call))
    return success(None)


async def list_keys(call: Call) -> Response:
    """List keys, a page at a time; the page's end is a cursor."""
    query = call.request.query_params
    page = await call.services.kv.list(
        call.account,
        await _id(call),
        prefix=query.get("prefix", ""),
        limit=call.number("limit", default=MAX_LIST_KEYS, most=MAX_LIST_KEYS),
        cursor=query.get("cursor"),
    )
    info = {"count": len(page.keys), "cursor": page.cursor or ""}
    return success([_key(each) for each in page.keys], info=info)


async def get_value(call: Call) -> Response:
    """Answer with a value's bytes."""
    namespace_id, key = await _id(call), _key_of(call)
    short = await call.services.kv.get_short(
        call.account, namespace_id, key, max_bytes=MAX_SHORT_BYTES
    )
    if isinstance(short, LongEntry):
        return await _long_value(call, namespace_id, key)
    if short is None:
        raise NoSuchRecord("key", key)
    return Response(short.value, headers=_headers(short))


async def _long_value(call: Call, namespace_id: str, key: str) -> Response:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(call.services.uploads.hold(call.account))
        found = await call.services.kv.get(call.account, namespace_id, key)
        if found is None:
            raise NoSuchRecord("key", key)
        # from here on, whoever sends it gives the place back
        return LongValue(found.value, _headers(found), stack.pop_all())


def _headers(entry: Entry) -> dict[str, str]:
    headers = {"content-type": "application/octet-stream"}
    if entry.expires_ms is not None:
        headers["expiration"] = str(entry.expires_ms // 1000)
    return headers


async def get_metadata(call: Call) -> Response:
    """Answer with a key's metadata."""
    found = await call.services.kv.get(call.account, await _id(call), _key_of(call))
    if found is None:
        raise NoSuchRecord("key", _key_of(call))
    return success(None if found.metadata is None else msgspec.Raw(found.metadata))


async def put_value(call: Call) -> Response:
    """Keep a value: the body, or a form's `value` beside `metadata`."""
    # as many as there may be uploads: each is in memory as a whole
    async with call.services.uploads.hold(call.account):
        return await _put_value(call)


async def _put_value(call: Call) -> Response:
    kind = call.request.headers.get("content-type", "")
    if kind.lower().startswith("multipart/form-data"):
        value, metadata = await _form_value(call)
    else:
        value, metadata = await call.body(max_bytes=MAX_VALUE_BYTES), None
    query = call.request.query_params
    write = a_write(
        _key_of(call),
        value,
        now_ms=call.services.kv.now_ms(),
        metadata=metadata,
        expiration_s=_seconds(call, "expiration") if "expiration" in query else None,
        ttl_s=_seconds(call, "expiration_ttl") if "expiration_ttl" in query else None,
    )
    await call.services.kv.put(call.account, await _id(call), [write])
    return success(None)


async def delete_value(call: Call) -> Response:
    """Delete a key; one that is not there is no error."""
    await call.services.kv.delete(call.account, await _id(call), [_key_of(call)])
    return success(None)


async def put_bulk(call: Call) -> Response:
    """Keep many values."""
    async with call.services.uploads.hold(call.account):
        return await _put_bulk(call)


async def _put_bulk(call: Call) -> Response:
    asked = await call.json(tuple[KeyValueInput, ...], max_bytes=MAX_BULK_BYTES)
    now_ms = call.services.kv.now_ms()
    writes = [_write(each, now_ms) for each in asked]
    await call.services.kv.put(call.account, await _id(call), writes)
    return success({"successful_key_count": len(writes), "unsuccessful_keys": []})


async def delete_bulk(call: Call) -> Response:
    """Delete many keys."""
    async with call.services.uploads.hold(call.account):
        keys = await call.json(tuple[str, ...], max_bytes=MAX_BULK_DELETE_BYTES)
    await call.services.kv.delete(call.account, await _id(call), keys)
    return success({"successful_key_count": len(keys), "unsuccessful_keys": []})


async def get_bulk(call: Call) -> Response:
    """Answer with several values at once."""
    asked = await call.json(KeysInput)
    found = await call.services.kv.get_many(call.account, await _id(call), asked.keys)
    values: dict[str, Any] = {}
    for key in asked.keys:
        entry = found.get(key)
        value = None if entry is None else _decoded(key, entry.value, asked.type)
        if entry is not None and asked.with_metadata:
            metadata = None if entry.metadata is None else msgspec.Raw(entry.metadata)
            value = {"value": value, "metadata": metadata}
        values[key] = value
    return success({"values": values})


# Any: whatever JSON holds
def _decoded(key: str, value: bytes, kind: str) -> Any:
    try:
        return msgspec.json.decode(value) if kind == "json" else value.decode()
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput("keys", f"the value of {key[:64]!r} is not {kind}: {error}") from error


async def _form_value(call: Call) -> tuple[bytes, Any]:
    parts = await read_form(
        call.request,
        max_bytes=MAX_VALUE_BYTES + MAX_METADATA_BYTES + METADATA_SLACK_BYTES,
        max_parts=2,
        timeout_s=call.services.limits.upload_timeout_s,
    )
    if "value" not in parts:
        raise InvalidInput("value", "is missing in the form")
    metadata = None
    if "metadata" in parts:
        try:
            metadata = msgspec.json.decode(parts["metadata"].content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidInput("metadata", f"is no JSON: {error}") from error
    return parts["value"].content, metadata


def _write(given: KeyValueInput, now_ms: int) -> Write:
    value = given.value.encode()
    if given.base64:
        try:
            value = base64.b64decode(given.value, validate=True)
        except ValueError as error:
            raise InvalidInput("value", f"of {given.key[:64]!r} is no base64") from error
    return a_write(
        given.key,
        value,
        now_ms=now_ms,
        metadata=given.metadata,
        expiration_s=given.expiration,
        ttl_s=given.expiration_ttl,
    )


def _seconds(call: Call, name: str) -> int:
    return call.number(name, default=0, least=0, most=9_999_999_999)


async def _found(call: Call) -> Namespace:
    asked = str(call.request.path_params["namespace"])
    return await call.services.kv.find_namespace(call.account, asked)


async def _id(call: Call) -> str:
    return (await _found(call)).id


def _key_of(call: Call) -> str:
    return str(call.request.path_params["key"])


def _namespace(found: Namespace) -> dict[str, Any]:
    return {"id": found.id, "title": found.title, "supports_url_encoding": True}


def _key(found: Key) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": found.name}
    if found.expires_ms is not None:
        shown["expiration"] = found.expires_ms // 1000
    if found.metadata is not None:
        shown["metadata"] = msgspec.Raw(found.metadata)
    return shown
