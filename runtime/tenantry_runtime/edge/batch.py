"""`POST …/ai/run/{model}?queueRequest=true`: batches, submitted and polled.

| body | answer |
|---|---|
| `{"requests": [{…, "external_reference": "…"}]}` | `{"status": "queued", "request_id": "…", "model": "…"}` |
| `{"request_id": "…"}`, not complete yet | the same, `queued` or `running` |
| `{"request_id": "…"}`, complete | `{"status": "complete", …, "responses": […], "usage": {…}}` |

Each of the `requests` is what the body of a request by itself is, and is checked when it is submitted:
if one is wrong, nothing is queued. A response has the `id` (the place in the list), the
`external_reference`, and either `result`, what the request by itself would be answered with, or `errors`.
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tenantry_runtime.errors import InvalidInput, NodeUnavailable
from tenantry_runtime.tenancy import Principal, Scope as TokenScope
from tenantry_runtime.tenancy.batches import Batch, BatchRequest

from . import envelope
from .authorization import Identify, by_token
from .body import read_body
from .dialects.dialect import Dialect
from .off_loop import off_loop
from .offer import Offer
from .reply import JSON
from .services import Services

MAX_REQUESTS = 1_000
"""Of one batch; all of its responses come in one answer."""

MAX_REFERENCE_CHARS = 256


class BatchInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body: one of the two."""

    requests: Annotated[list[msgspec.Raw], Meta(min_length=1)] | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a batch stands."""

    status: str
    request_id: str
    model: str


class TokenSums(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completed(Standing, frozen=True, kw_only=True):
    """What came of a batch."""

    responses: list[msgspec.Raw]
    usage: TokenSums


_input = msgspec.json.Decoder(BatchInput)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_reference = msgspec.json.Decoder(Annotated[str, Meta(max_length=MAX_REFERENCE_CHARS)] | None)


class BatchEndpoint:
    """An ASGI application: batches, and for all other requests the one that it stands before."""

    def __init__(
        self,
        services: Services,
        dialect: Dialect,
        run: ASGIApp,
        *,
        identify: Identify | None = None,
    ) -> None:
        """`identify` says who calls where no token does."""
        self._services = services
        self._dialect = dialect
        self._run = run
        self._identify = identify or by_token(services.authenticator, TokenScope.RUN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.query_params.get("queueRequest") != "true":
            await self._run(scope, receive, send)
            return
        headers = {**JSON, "cf-ai-req-id": str(uuid.uuid4())}
        try:
            body = await self._answer(request)
        except ClientDisconnect:
            return
        await Response(body, headers=headers)(scope, receive, send)

    async def _answer(self, request: Request) -> bytes:
        services, model = self._services, request.path_params["model"]
        with services.open_requests.admit():
            principal = await self._identify(request)
            _check_query(request)
            offer = services.offers.resolve(model)
            body = await read_body(
                request,
                max_bytes=services.limits.max_body_bytes,
                timeout_s=services.limits.body_timeout_s,
            )
            read = partial(read_batch, body, offer, self._dialect)
            asked = await off_loop(read, num_bytes=len(body), limiter=services.threads)
            if isinstance(asked, str):
                return await self._poll(principal, offer, asked)
            return await self._submit(principal, offer, asked)
        # this edge ends
        raise NodeUnavailable(model)

    async def _submit(
        self, principal: Principal, offer: Offer, requests: list[BatchRequest]
    ) -> bytes:
        batch_id = await self._services.store.batches.submit(
            principal.tenant,
            principal.token_id,
            offer.entry.id,
            requests,
            worker=principal.worker,
            worker_version=principal.worker_version,
        )
        return envelope.success(
            Standing(status="queued", request_id=batch_id, model=offer.entry.id)
        )

    async def _poll(self, principal: Principal, offer: Offer, batch_id: str) -> bytes:
        batches = self._services.store.batches
        batch = await batches.find(batch_id)
        if batch is None or (batch.account_id, batch.model) != (principal.tenant, offer.entry.id):
            raise InvalidInput("request_id", "there is no such batch of this account and model")
        if batch.status != "complete":
            standing = Standing(status=batch.status, request_id=batch.id, model=batch.model)
            return envelope.success(standing)
        return envelope.success(_completed(batch, await batches.responses(batch.id)))


def read_batch(body: bytes, offer: Offer, dialect: Dialect) -> str | list[BatchRequest]:
    """Read what is submitted, or the id of what is polled.

    Raises `InvalidInput`, which names the field, and which of the requests it is in.
    """
    try:
        asked = _input.decode(body)
    except msgspec.ValidationError as error:
        problem = str(error).partition(" - at `$")[0]
        raise InvalidInput("", f"{problem[:1].lower()}{problem[1:]}".replace("`", "'")) from error
    except msgspec.DecodeError as error:
        raise InvalidInput("", f"the body is no valid JSON: {error}") from error
    except RecursionError as error:
        raise InvalidInput("", "the body is nested too deeply") from error
    if (asked.requests is UNSET) == (asked.request_id is UNSET):
        raise InvalidInput("", "exactly one of 'requests' and 'request_id' is required")
    if asked.request_id is not UNSET:
        return asked.request_id
    assert asked.requests is not UNSET
    if len(asked.requests) > MAX_REQUESTS:
        raise InvalidInput("requests", f"has more than {MAX_REQUESTS} requests")
    return [_read(bytes(raw), at, offer, dialect) for at, raw in enumerate(asked.requests)]


def _read(raw: bytes, at: int, offer: Offer, dialect: Dialect) -> BatchRequest:
    place = f"requests[{at}]"
    try:
        fields = _fields.decode(raw)
    except msgspec.DecodeError as error:
        raise InvalidInput(place, "must be an object") from error
    try:
        reference = _reference.decode(fields.pop("external_reference", b"null"))
    except msgspec.DecodeError as error:
        problem = f"must be a string of at most {MAX_REFERENCE_CHARS} characters"
        raise InvalidInput(f"{place}.external_reference", problem) from error
    if reference is not None and "\0" in reference:
        # PostgreSQL has no such strings
        raise InvalidInput(f"{place}.external_reference", "must have no null character")
    body = msgspec.json.encode(fields)
    try:
        parsed = dialect.parse(body, offer.target, session=None)
    except InvalidInput as error:
        raise InvalidInput(f"{place}.{error.field}".rstrip("."), error.problem) from error
    if parsed.stream:
        raise InvalidInput(f"{place}.stream", "nothing of a batch can be streamed")
    return BatchRequest(body=body, external_reference=reference)


def _completed(batch: Batch, responses: list[bytes]) -> Completed:
    return Completed(
        status=batch.status,
        request_id=batch.id,
        model=batch.model,
        responses=[msgspec.Raw(response) for response in responses],
        usage=TokenSums(
            prompt_tokens=batch.prompt_tokens,
            completion_tokens=batch.completion_tokens,
            total_tokens=batch.prompt_tokens + batch.completion_tokens,
        ),
    )


def _check_query(request: Request) -> None:
    for name, _ in request.query_params.multi_items():
        if name not in ("tags", "queueRequest"):
            raise InvalidInput(f"?{name[:100]}", "is not supported")
