"""The bindings of `env` that are more than values: models, keys and values, other workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, TypeAlias, Unpack, overload

from ._abort import AbortSignal, until_aborted
from ._body import Body, host_body, make_body
from ._errors import AiError, BindingError
from ._fetch import send
from ._host import INLINE_BYTES, Body as HostBody, Host, HostResponse, is_stream
from ._request import FetchKwargs, Request
from ._response import Response
from ._streams import Buffer, ReadableStream
from ._values import JsonObject, is_dict, is_list, plain, wrap

ValueType: TypeAlias = Literal["text", "json", "arrayBuffer", "stream"]
METADATA_HEADER = "cf-kv-metadata"
"""Of a value that is too long for an answer, which comes as a response; JSON."""

Options: TypeAlias = Mapping[str, Any] | None


class AI:
    """`env.AI`: the models, with this worker's own account."""

    __slots__ = ("_host", "_name")

    def __init__(self, host: Host, name: str) -> None:
        self._host = host
        self._name = name

    # Any: what a model returns depends on the model and on `stream`
    async def run(
        self,
        model: str,
        inputs: Mapping[str, Any] | None = None,
        options: Options = None,
        **more: Any,
    ) -> Any:
        """Run a model; return its result, whose keys are attributes too.

        Named arguments are options, or the inputs where there are no others.

        `stream: true` in the inputs returns a `ReadableStream` of server-sent events, `returnRawResponse`
        in the options a `Response`, `queueRequest` the request's id. `extraHeaders` may carry
        `x-session-affinity`; without it the session, deadline and trace are those of the request that
        is being answered. `signal` ends the answer. Raises `AiError`.
        """
        if inputs is None:
            inputs, more = more, {}
        chosen = {**(options or {}), **more}
        signal = chosen.pop("signal", None)
        values = plain(inputs, "the inputs of AI.run")
        body: HostBody = None
        if _length(values) > INLINE_BYTES:
            values, body = None, json.dumps(values, ensure_ascii=False).encode()
        args = [str(model), values, plain(chosen, "the options of AI.run")]
        return await self._call("run", args, signal, body)

    async def models(self, params: Options = None, **more: Any) -> list[JsonObject]:
        """Return the models; `params` may be `search`, `task`, `author`, `page`, `per_page`, …"""
        chosen = plain({**(params or {}), **more}, "the parameters of AI.models")
        answer: list[JsonObject] = await self._call("models", [chosen], None)
        return answer

    async def _call(
        self, method: str, args: list[Any], signal: AbortSignal | None, body: HostBody = None
    ) -> Any:
        try:
            answer = await until_aborted(self._host.call(self._name, method, args, body), signal)
        except BindingError as error:
            raise AiError(error.name, error.message, error.code) from None
        if isinstance(answer, HostResponse):
            return Response.received(answer)
        if not is_stream(answer):
            return wrap(answer)
        stream = ReadableStream(answer)
        if answer.content_type == "application/json":
            return wrap(json.loads(await stream.read()))
        return stream

    def __getattr__(self, name: str) -> Any:
        if name in ("gateway", "toMarkdown", "autorag", "aiSearch", "websearch"):
            raise AttributeError(f"AI.{name} is Cloudflare's service, which this runtime has not")
        raise AttributeError(f"AI has run and models, no {name!r}")


class KvNamespace:
    """A namespace of keys and values, shared by all of this account's workers that are bound to it."""

    __slots__ = ("_host", "_name")

    def __init__(self, host: Host, name: str) -> None:
        self._host = host
        self._name = name

    @overload
    async def get(self, key: str, type: Literal["text"] = "text") -> str | None: ...
    @overload
    async def get(self, key: str, type: Literal["arrayBuffer"]) -> Buffer | None: ...
    @overload
    async def get(self, key: str, type: Literal["stream"]) -> ReadableStream | None: ...
    @overload
    async def get(
        self, key: str | Sequence[str], type: ValueType | Options = None, **more: Any
    ) -> Any: ...
    async def get(
        self, key: str | Sequence[str], type: ValueType | Options = None, **more: Any
    ) -> Any:
        """Return a value, or None if there is none; of several keys, a dict of theirs.

        `type` is `text`, `json`, `arrayBuffer` (bytes) or `stream`, or options with that key.
        """
        options = _with_type(type, more)
        answer = await self._host.call(self._name, "get", [_key(key), options])
        if not isinstance(key, str):
            return await _as_type(answer, "json")
        return await _as_type(answer, options["type"])

    async def getWithMetadata(
        self, key: str | Sequence[str], type: ValueType | Options = None, **more: Any
    ) -> JsonObject:
        """Return `value` and `metadata`, each None if there is none; of several keys, those of each."""
        options = _with_type(type, more)
        answer: Any = await self._host.call(self._name, "getWithMetadata", [_key(key), options])
        if not isinstance(key, str):
            several: JsonObject = await _as_type(answer, "json")
            return several
        if isinstance(answer, HostResponse):
            metadata = json.loads(dict(answer.headers).get(METADATA_HEADER, "null"))
            answer = {"value": answer.body, "metadata": metadata}
        found = JsonObject(answer)
        found["value"] = await _as_type(found["value"], options["type"])
        found["metadata"] = wrap(found.get("metadata"))
        return found

    get_with_metadata = getWithMetadata

    async def put(self, key: str, value: Body, options: Options = None, **more: Any) -> None:
        """Write text, bytes or a stream.

        Options: `expiration` (seconds of Unix time) or `expirationTtl` (seconds from now, at least
        60), and `metadata` (JSON, at most 1024 bytes).
        """
        chosen = plain({**(options or {}), **more}, "the options of put")
        made, _ = make_body(value, where="put()")
        if made is None:
            raise TypeError("put() writes text, bytes or a stream; delete() removes a key")
        body: HostBody = host_body(made)
        inline: Any = None
        if isinstance(body, bytes) and len(body) <= INLINE_BYTES:
            inline, body = (value if isinstance(value, str) else body), None
        await self._host.call(self._name, "put", [_key(key), inline, chosen], body)

    async def delete(self, key: str) -> None:
        """Remove a key; nothing happens if there is none."""
        await self._host.call(self._name, "delete", [_key(key)])

    async def list(self, options: Options = None, **more: Any) -> JsonObject:
        """Return `keys` (dicts of `name`, `expiration`, `metadata`), `list_complete` and `cursor`.

        Options: `prefix`, `limit` (1000 at most), `cursor`. Write `result["keys"]`: a dict has a
        method of that name.
        """
        given = {**(options or {}), **more}
        chosen = {name: value for name, value in given.items() if value is not None}
        answer = await self._host.call(self._name, "list", [plain(chosen, "the options of list")])
        found: JsonObject = wrap(answer)
        return found


class Service:
    """Another worker of this account: `fetch`, and each public method of its entrypoint."""

    __slots__ = ("_host", "_name")

    def __init__(self, host: Host, name: str) -> None:
        self._host = host
        self._name = name

    async def fetch(self, resource: Request | str, **options: Unpack[FetchKwargs]) -> Response:
        """Send it a request; the URL's host is nobody's, and arrives as it is."""
        return await send(self._host, self._name, Request(resource, **options))

    def __getattr__(self, method: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if method.startswith("_"):
            raise AttributeError(method)

        async def call(*args: Any, **kwargs: Any) -> Any:
            where = f"the arguments of {self._name}.{method}"
            answer = await self._host.call(
                self._name, method, [plain(list(args), where), plain(kwargs, where)]
            )
            return ReadableStream(answer) if is_stream(answer) else wrap(answer)

        call.__name__ = method
        return call


def _length(values: Any) -> int:
    """Estimate how long JSON of the values is, in characters."""
    if isinstance(values, str):
        return len(values) + 3
    if is_list(values):
        return sum(map(_length, values)) + 2
    if is_dict(values):
        return sum(len(key) + 4 + _length(value) for key, value in values.items()) + 2
    return 8


def _key(key: Any) -> Any:
    if isinstance(key, str):
        return str(key)
    return [str(each) for each in key]


def _with_type(type: ValueType | Options, more: Mapping[str, Any]) -> dict[str, Any]:
    given = {"type": type} if isinstance(type, str) else dict(type or {})
    options: dict[str, Any] = plain({**given, **more}, "the options of get")
    if options.setdefault("type", "text") not in ("text", "json", "arrayBuffer", "stream"):
        raise TypeError(
            f"{options['type']!r} is no type of a value: text, json, arrayBuffer or stream"
        )
    return options


async def _as_type(value: Any, type: str) -> Any:
    """Give a value the type that was asked for; a long one has come as a stream."""
    if value is None:
        return None
    if type == "stream":
        return ReadableStream(value if is_stream(value) else _bytes(value))
    if is_stream(value):
        value = await ReadableStream(value).read()
        return _of_bytes(value, type)
    if type == "json" and not isinstance(value, bytes):
        return wrap(value)
    return _of_bytes(_bytes(value), type)


def _of_bytes(value: bytes, type: str) -> Any:
    match type:
        case "json":
            return wrap(json.loads(value))
        case "text":
            return value.decode("utf-8", "replace")
        case _:
            return Buffer(value)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
