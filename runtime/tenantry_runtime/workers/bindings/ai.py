"""`env.AI`: the models, run by the edge itself for the worker's own tenant.

| option of `run` | |
|---|---|
| `queueRequest` | submits a batch, or polls one |
| `returnRawResponse` | returns the response, also one of an error |
| `extraHeaders` | `x-session-affinity` names the session; others mean nothing here, as in the API |
| `rejectIfBusy` | as in the inputs' `options` |
| `tags` | at most 5, of at most 50 characters each; they label a request, no more |
| `gateway`, `prefix`, `websocket` | refused: Cloudflare's own services |

The session is what `extraHeaders` say, else the inputs' `prompt_cache_key`, else what the worker's own
caller sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import msgspec

from tenantry_runtime.edge import envelope
from tenantry_runtime.edge.dialects.dialect import SESSION_HEADER
from tenantry_runtime.edge.dialects.parameters import MAX_SESSION_CHARS
from tenantry_runtime.edge.exchange import Exchange
from tenantry_runtime.edge.internal import InternalRun, InternalRuns, RunRefused
from tenantry_runtime.edge.listing import find_models
from tenantry_runtime.edge.off_loop import off_loop
from tenantry_runtime.edge.services import Services
from tenantry_runtime.errors import BodyTooLarge, InvalidInput, TenantryError, UnknownModel
from tenantry_runtime.workers.byte_streams import MAX_VALUE_BYTES, BytesStream
from tenantry_runtime.workers.interface import (
    ByteStream,
    CallContext,
    CallRefused,
    HttpResponse,
    StreamResult,
)

from .arguments import Arguments, flag_of, mapping_of, read_all, shown, text_of, wrong_type
from .kv_answers import fits

NAME = "AiError"
"""Of what the API refuses; the text begins with its code."""

JSON = "application/json"
EVENT_STREAM = "text/event-stream"

MAX_MODEL_CHARS = 256
MAX_TAGS = 5
_TAG = re.compile(r"[A-Za-z0-9:\-./@]{1,50}")

_REFUSED = {
    "gateway": "there is no AI Gateway here; leave it out",
    "prefix": "is not supported; leave it out",
    "websocket": "is not supported; stream: true in the inputs streams the answer",
}
_KNOWN = {
    *_REFUSED,
    "queueRequest",
    "returnRawResponse",
    "extraHeaders",
    "sessionOptions",
    "rejectIfBusy",
    "tags",
    "signal",
}


class _Printed(msgspec.Struct, frozen=True):
    result: msgspec.Raw


_printed = msgspec.json.Decoder(_Printed)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any = msgspec.json.Decoder()
_NULL = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What of the options is left when they have been checked."""

    session: str | None
    is_raw: bool
    is_queued: bool
    rejects_if_busy: bool


class AiCalls:
    """Answers calls of all workers' `ai` bindings."""

    def __init__(self, services: Services, runs: InternalRuns) -> None:
        self._services = services
        self._runs = runs

    async def call(
        self, context: CallContext, method: str, args: Sequence[Any], body: ByteStream | None
    ) -> object | HttpResponse | StreamResult:
        """Answer one, as `interface.Bindings.call` says."""
        try:
            match method:
                case "run":
                    return await self._run(context, Arguments("AI.run", args, at_most=3), body)
                case "models":
                    return self._models(Arguments("AI.models", args, at_most=1))
                case _:
                    raise wrong_type(f"AI has run and models, no {shown(method)}")
        except TenantryError as error:
            entry = envelope.error_entry(error)
            raise _refusal(entry.code, entry.message) from error

    async def _run(
        self, context: CallContext, args: Arguments, body: ByteStream | None
    ) -> object | HttpResponse | StreamResult:
        model = args.text(0, "the model")
        if len(model) > MAX_MODEL_CHARS:
            raise UnknownModel(f"{model[:MAX_MODEL_CHARS]}…")
        options = read_options(args.mapping(2, "the options"))
        inputs = await self._inputs(args, body)
        version = context.version
        asked = InternalRun(
            principal=await self._services.authenticator.principal_of(
                context.tenant, worker=version.worker, version=version.version_id
            ),
            model=model,
            body=_printed_inputs(inputs, options),
            session=_session(context, inputs, options),
            traceparent=context.invocation.traceparent,
            tracestate=context.invocation.tracestate,
            deadline_s=inf if context.deadline_s is None else context.deadline_s,
            is_batch=options.is_queued or "request_id" in inputs,
        )
        try:
            exchange = await self._runs.run(asked)
        except RunRefused as refused:
            if options.is_raw:
                return _raw_refusal(refused)
            raise _refusal(refused.code, refused.message) from refused
        return await _result(exchange, is_raw=options.is_raw)

    # Any, here and below: whatever JSON has, some of it as it was printed
    async def _inputs(self, args: Arguments, body: ByteStream | None) -> Mapping[str, Any]:
        if body is None:
            if args.value(1) is None:
                raise wrong_type("AI.run: the inputs are missing")
            return args.mapping(1, "the inputs")
        limit = self._services.limits.max_body_bytes
        read = await read_all(body, limit)
        if read is None:
            raise BodyTooLarge(limit)
        try:
            return await off_loop(
                partial(_fields.decode, read),
                num_bytes=len(read),
                limiter=self._services.threads,
            )
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidInput("", "the inputs are no JSON object") from error

    def _models(self, args: Arguments) -> object:
        query = args.mapping(0, "the parameters")
        texts = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in query.items()
            if isinstance(value, str | int)
        }
        if len(texts) < sum(value is not None for value in query.values()):
            raise wrong_type("AI.models: parameters must be strings and numbers")
        models, _ = find_models(self._services.offers.all, texts)
        listed: object = _any.decode(msgspec.json.encode(models))
        return listed


def read_options(options: Mapping[str, Any]) -> RunOptions:
    """Check the options of `run`; raise `CallRefused`."""
    for name, value in options.items():
        if name not in _KNOWN:
            raise _refusal(5006, f"AiError: Bad input: options: there is no option {shown(name)}")
        if name in _REFUSED and value:
            raise _refusal(5006, f"AiError: Bad input: options.{name}: {_REFUSED[name]}")
    _check_tags(options.get("tags"))
    deprecated = mapping_of(options.get("sessionOptions"), "AI.run: sessionOptions")
    headers = {
        **mapping_of(deprecated.get("extraHeaders"), "AI.run: extraHeaders"),
        **mapping_of(options.get("extraHeaders"), "AI.run: extraHeaders"),
    }
    return RunOptions(
        session=_explicit_session(headers),
        is_raw=flag_of(options, "returnRawResponse", "AI.run"),
        is_queued=flag_of(options, "queueRequest", "AI.run"),
        rejects_if_busy=flag_of(options, "rejectIfBusy", "AI.run"),
    )


# Any: whatever JSON has, some of it as it was printed
def _printed_inputs(inputs: Mapping[str, Any], options: RunOptions) -> bytes:
    try:
        if options.rejects_if_busy:
            theirs = inputs.get("options")
            known = _any.decode(theirs) if isinstance(theirs, msgspec.Raw) else theirs
            merged = {**mapping_of(known, "AI.run: options"), "rejectIfBusy": True}
            inputs = {**inputs, "options": merged}
        # of long inputs nothing is printed again, only put together
        return msgspec.json.encode(inputs)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput("", "the inputs cannot be written as JSON") from error


def _explicit_session(headers: Mapping[str, Any]) -> str | None:
    lower = {name.lower(): value for name, value in headers.items()}
    session = text_of(lower, SESSION_HEADER, "AI.run")
    if session is not None and not is_session(session):
        raise _refusal(
            5006,
            f"AiError: Bad input: {SESSION_HEADER}: must be 1 to {MAX_SESSION_CHARS} printable "
            "characters that a header can have",
        )
    return session


def is_session(session: str) -> bool:
    """Say whether a text may name a session in a header."""
    is_short = 0 < len(session) <= MAX_SESSION_CHARS
    return is_short and session.isprintable() and all(character < "\u0100" for character in session)


def _session(context: CallContext, inputs: Mapping[str, Any], options: RunOptions) -> str | None:
    if options.session is not None:
        return options.session
    if inputs.get("prompt_cache_key") not in (None, _NULL):
        return None
    inherited = context.invocation.session
    # the caller's own words: what the API would refuse of it is not the worker's fault
    return inherited if inherited is not None and is_session(inherited) else None


def _check_tags(tags: Any) -> None:
    if tags is None:
        return
    fits = isinstance(tags, list) and all(
        isinstance(tag, str) and _TAG.fullmatch(tag) for tag in tags
    )
    if not fits or len(set(tags)) > MAX_TAGS:
        raise _refusal(
            5006,
            f"AiError: Bad input: options.tags: at most {MAX_TAGS}, each of 1 to 50 letters, digits "
            "and :-./@",
        )


async def _result(exchange: Exchange, *, is_raw: bool) -> object | HttpResponse | StreamResult:
    content_type = dict(exchange.headers).get("content-type", JSON)
    if content_type == EVENT_STREAM:
        if is_raw:
            return HttpResponse(status=exchange.status, headers=exchange.headers, body=exchange)
        return StreamResult(stream=exchange, content_type=content_type)
    try:
        result = bytes(_printed.decode(await exchange.read()).result)
    finally:
        exchange.leave()
    if is_raw:
        headers = [each for each in exchange.headers if each[0] != "content-length"]
        return HttpResponse(status=exchange.status, headers=headers, body=result)
    value: object = None
    # a model may write longer numbers than a frame can carry
    if len(result) > MAX_VALUE_BYTES or not fits(value := _any.decode(result)):
        return StreamResult(stream=BytesStream(result), content_type=JSON)
    return value


def _raw_refusal(refused: RunRefused) -> HttpResponse:
    """Return an error as the binding's own service at Cloudflare prints one."""
    printed = {
        "internalCode": refused.code,
        "name": NAME,
        "message": refused.message,
        "description": refused.message,
    }
    return HttpResponse(
        status=refused.status,
        headers=[("content-type", JSON)],
        body=msgspec.json.encode(printed),
    )


def _refusal(code: int, message: str) -> CallRefused:
    return CallRefused(NAME, f"{code}: {message}", code)
