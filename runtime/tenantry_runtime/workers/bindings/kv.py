"""`env.KV`: one namespace of keys and values, which the version's own binding names.

| method | arguments | answer |
|---|---|---|
| `get` | key, type or `{type, cacheTtl}` | the value, or null |
| `get` | up to 100 keys, the same | an object: key to value or null |
| `getWithMetadata` | the same | `{value, metadata}`, or an object of those |
| `put` | key, text or bytes, `{expiration, expirationTtl, metadata}` | null |
| `delete` | key | null |
| `list` | `{prefix, limit, cursor}` | `{keys, list_complete, cursor}` |

Types are `text`, `json`, `arrayBuffer` and `stream`. A value of more than `MAX_VALUE_BYTES`, and a
`stream`, come as a stream; with metadata, as a response whose header `cf-kv-metadata` has them. Long
answers about several keys are streams of JSON. Nothing is cached, so `cacheTtl` changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import KvRefused, NoSuchRecord, StoreUnavailable
from tenantry_runtime.tenancy.kv import (
    MAX_LIST_KEYS,
    MAX_READ_BYTES,
    KeyValues,
    LongEntry,
)
from tenantry_runtime.tenancy.kv_entry import MAX_VALUE_BYTES as MAX_KEPT_BYTES, a_write
from tenantry_runtime.workers.byte_streams import MAX_VALUE_BYTES, BytesStream, HeldStream
from tenantry_runtime.workers.interface import (
    ByteStream,
    CallContext,
    CallRefused,
    HttpResponse,
    StreamResult,
)
from tenantry_runtime.workers.spec import KvBinding

from .arguments import Arguments, number_of, shown, text_of, wrong_type
from .kv_answers import CONTENT_TYPES, decoded, fits, metadata_of, page_of, several, streamed
from .kv_held import HELD_EACH, Held
from .places import Places

PLACES_EACH = 8
"""Of each tenant: calls that are with the store."""


class KvCalls:
    """Answers calls of all workers' `kv` bindings."""

    def __init__(self, key_values: KeyValues) -> None:
        self._key_values = key_values
        self._places = Places(PLACES_EACH)
        self._held = Places(HELD_EACH)

    async def call(
        self,
        context: CallContext,
        binding: KvBinding,
        method: str,
        args: Sequence[Any],
        body: ByteStream | None,
    ) -> object | HttpResponse | StreamResult:
        """Answer one, as `interface.Bindings.call` says."""
        verb = {"put": "PUT", "delete": "DELETE"}.get(method, "GET")
        try:
            return await self._answer(context.tenant, binding.namespace_id, method, args, body)
        except KvRefused as refused:
            if refused.field == "key" and refused.status == 400:
                raise wrong_type(refused.problem) from refused
            raise _failed(verb, refused.status, refused.problem) from refused
        except NoSuchRecord as error:
            raise _failed(verb, 404, "Not Found: there is no such namespace any more") from error
        except StoreUnavailable as error:
            raise _failed(verb, 503, "Service Unavailable") from error

    async def _answer(
        self,
        account: TenantId,
        namespace: str,
        method: str,
        args: Sequence[Any],
        body: ByteStream | None,
    ) -> object:
        match method:
            case "get" | "getWithMetadata":
                read = Arguments(f"KV.{method}", args, at_most=2)
                with_metadata = method == "getWithMetadata"
                if isinstance(read.value(0), list):
                    return await self._get_many(account, namespace, read, with_metadata)
                return await self._get(account, namespace, read, with_metadata)
            case "put":
                written = Arguments("KV.put", args, at_most=3)
                await self._put(account, namespace, written, body)
                return None
            case "delete":
                key = Arguments("KV.delete", args, at_most=1).text(0, "the key")
                async with self._place(account):
                    await self._key_values.delete(account, namespace, [key])
                return None
            case "list":
                return await self._list(account, namespace, Arguments("KV.list", args, at_most=1))
            case _:
                raise wrong_type(f"a KV namespace has no method {shown(method)}")

    async def _get(
        self, account: TenantId, namespace: str, args: Arguments, with_metadata: bool
    ) -> object:
        key, type_ = args.text(0, "the key"), _type(args)
        async with self._place(account):
            entry = await self._key_values.get_short(
                account, namespace, key, max_bytes=MAX_VALUE_BYTES
            )
        if isinstance(entry, LongEntry):
            return await self._get_long(account, namespace, key, type_, with_metadata)
        value = None if entry is None else decoded(entry.value, type_)
        if entry is not None and type_ == "json" and not fits(value):
            return streamed(BytesStream(entry.value), entry, type_, with_metadata)
        if not with_metadata:
            return value
        metadata = None if entry is None else metadata_of(entry.metadata)
        return {"value": value, "metadata": metadata, "cacheStatus": None}

    async def _get_long(
        self, account: TenantId, namespace: str, key: str, type_: str, with_metadata: bool
    ) -> object:
        """Return a long value as a stream, in memory until it has been read."""
        # of the longest, as it may have been written since
        await self._held.take(account, MAX_KEPT_BYTES)
        num_held = MAX_KEPT_BYTES
        try:
            async with self._place(account):
                entry = await self._key_values.get(account, namespace, key)
            num_needed = 0 if entry is None else len(entry.value)
            self._held.give_back(account, num_held - num_needed)
            num_held = num_needed
            if entry is None:
                return {"value": None, "metadata": None} if with_metadata else None
            give_back = partial(self._held.give_back, account, num_held)
            stream = HeldStream(BytesStream(entry.value), give_back)
            num_held = 0
            return streamed(stream, entry, type_, with_metadata)
        finally:
            if num_held:
                self._held.give_back(account, num_held)

    async def _get_many(
        self, account: TenantId, namespace: str, args: Arguments, with_metadata: bool
    ) -> object:
        keys, type_ = args.value(0), _type(args)
        if not all(isinstance(key, str) for key in keys):
            raise wrong_type(f"{args.call}: the keys must be strings")
        if type_ not in ("text", "json"):
            problem = f'"{type_}" is not a valid type. Use "json" or "text"'
            raise KvRefused("type", problem)
        await self._held.take(account, MAX_READ_BYTES)
        try:
            async with self._place(account):
                found = await self._key_values.get_many(account, namespace, keys)
            return several(keys, found, type_, with_metadata)
        finally:
            self._held.give_back(account, MAX_READ_BYTES)

    @asynccontextmanager
    async def _place(self, account: TenantId) -> AsyncIterator[None]:
        await self._places.take(account)
        try:
            yield
        finally:
            self._places.give_back(account)

    async def _put(
        self, account: TenantId, namespace: str, args: Arguments, body: ByteStream | None
    ) -> None:
        key, options = args.text(0, "the key"), args.mapping(2, "the options")
        if body is None:
            await self._write(account, namespace, key, args.value(1), options)
            return
        held = Held(self._held, account)
        try:
            read = await held.read(body)
            await self._write(account, namespace, key, read, options)
        finally:
            held.give_back()

    async def _write(
        self, account: TenantId, namespace: str, key: str, value: Any, options: Mapping[str, Any]
    ) -> None:
        if isinstance(value, str):
            try:
                value = value.encode()
            except UnicodeEncodeError as error:
                raise wrong_type("KV.put: the value is no text") from error
        if not isinstance(value, bytes):
            raise wrong_type(f"KV.put: the value must be text or bytes, not {shown(value)}")
        write = a_write(
            key,
            value,
            now_ms=self._key_values.now_ms(),
            metadata=options.get("metadata"),
            expiration_s=number_of(options, "expiration", "KV.put"),
            ttl_s=number_of(options, "expirationTtl", "KV.put"),
        )
        async with self._place(account):
            await self._key_values.put(account, namespace, [write])

    async def _list(self, account: TenantId, namespace: str, args: Arguments) -> object:
        options = args.mapping(0, "the options")
        limit = number_of(options, "limit", args.call)
        prefix = text_of(options, "prefix", args.call) or ""
        cursor = text_of(options, "cursor", args.call)
        async with self._place(account):
            page = await self._key_values.list(
                account,
                namespace,
                prefix=prefix,
                limit=MAX_LIST_KEYS if limit is None else limit,
                cursor=cursor,
            )
        return page_of(page)


def _type(args: Arguments) -> str:
    given = args.value(1)
    options: Mapping[str, Any] = (
        {"type": given} if isinstance(given, str) else args.mapping(1, "the options")
    )
    type_ = text_of(options, "type", args.call) or "text"
    if type_ not in CONTENT_TYPES:
        raise wrong_type(
            f"{args.call}: unknown response type {shown(type_)}: possible types are "
            f'"text", "arrayBuffer", "json" and "stream"'
        )
    return type_


def _failed(verb: str, status: int, problem: str) -> CallRefused:
    return CallRefused("Error", f"KV {verb} failed: {status} {problem}", status)
