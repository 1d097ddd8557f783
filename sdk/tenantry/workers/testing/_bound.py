"""Whom a worker sends requests to: the world outside, and other workers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from tenantry.workers._abort import AbortSignal
from tenantry.workers._body import host_body
from tenantry.workers._host import Body, HostRequest, HostResponse, is_stream
from tenantry.workers._request import Request
from tenantry.workers._response import Response
from tenantry.workers._values import plain

from ._host import FakeStream, read_body

Respond: TypeAlias = Callable[[Request], Response | Awaitable[Response]]


class FakeFetch:
    """Answers requests by a function; without one, a request is a `ConnectionError`."""

    kind = "service"

    def __init__(self, respond: Respond | None = None) -> None:
        self._respond = respond
        self.requests: list[Request] = []

    requests: list[Request]
    """Those that were sent, in order; a body can be read here too."""

    async def answer(self, method: str, args: list[Any], body: Body) -> object:
        """Answer a call of the worker."""
        if method != "fetch":
            raise AttributeError(f"nothing answers {method!r} here")
        verb, url, headers, inline = args[:4]
        if self._respond is None:
            raise ConnectionError(
                f"nothing answers {verb} {url} here: open_worker(fetch=...) does so"
            )
        content = inline if inline is not None else (await read_body(body) or None)
        pairs = [(name, value) for name, value in headers]
        request = Request.received(HostRequest(verb, url, pairs, content), AbortSignal())
        self.requests.append(request.clone())
        response = self._respond(request)
        if inspect.isawaitable(response):
            response = await response
        return as_host_response(response, url)


class FakeService(FakeFetch):
    """Another worker, by functions: `FakeService(fetch, add=lambda a, b: a + b)`."""

    def __init__(self, respond: Respond | None = None, **methods: Callable[..., Any]) -> None:
        super().__init__(respond)
        self._methods = methods

    async def answer(self, method: str, args: list[Any], body: Body) -> object:
        """Answer a call of the worker."""
        if method == "fetch":
            return await super().answer(method, args, body)
        if method not in self._methods:
            raise AttributeError(f"this FakeService has no method {method!r}")
        positional, named = args
        result = self._methods[method](*positional, **named)
        if inspect.isawaitable(result):
            result = await result
        return plain(result, f"what {method} returns")


def as_host_response(response: Response, url: str) -> HostResponse:
    """Turn a response that somebody made into what a host gives to a worker."""
    body = host_body(response.take_body())
    if body is None or isinstance(body, bytes):
        content: Any = body
    else:
        content = body if is_stream(body) else FakeStream(aiter(body))
    return HostResponse(response.status, response.headers.raw_items(), content, url)
