"""What a worker is written with; inside an isolate it is importable as `workers` too.

    from workers import Response, WorkerEntrypoint

    class Default(WorkerEntrypoint):
        async def fetch(self, request):
            result = await self.env.AI.run("@cf/moonshotai/kimi-k2.6", {"prompt": "Say hello."})
            return Response(result.choices[0].message.content)

The names are those of Cloudflare's Python SDK, but for what only Pyodide has. Values are Python's own.
Only the standard library is imported. `tenantry.workers.testing` runs a worker in a test's process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._abort import AbortController, AbortError, AbortSignal
from ._bindings import AI, KvNamespace, Service
from ._blob import Blob, BlobEnding, BlobValue, File
from ._body import Body
from ._entrypoints import (
    Context,
    ScheduledController,
    WorkerEntrypoint,
    handler,
    wait_until,
)
from ._env import CurrentEnv, Env, patch_env
from ._errors import AiError, BindingError
from ._fetch import fetch
from ._forms import FormData, FormDataValue
from ._headers import Headers, HeadersInit
from ._request import FetchKwargs, Request, RequestInitCfProperties
from ._response import FetchResponse, Response
from ._streams import Buffer, ReadableStream
from ._values import JsonObject

waitUntil = wait_until

env: Env = CurrentEnv()
"""The bindings, variables and secrets of the worker whose code is running."""

__all__ = [
    "AI",
    "AbortController",
    "AbortError",
    "AbortSignal",
    "AiError",
    "BindingError",
    "Blob",
    "BlobEnding",
    "BlobValue",
    "Body",
    "Buffer",
    "Context",
    "Env",
    "FetchKwargs",
    "FetchResponse",
    "File",
    "FormData",
    "FormDataValue",
    "Headers",
    "HeadersInit",
    "JsonObject",
    "KvNamespace",
    "ReadableStream",
    "Request",
    "RequestInitCfProperties",
    "Response",
    "ScheduledController",
    "Service",
    "WorkerEntrypoint",
    "env",
    "fetch",
    "handler",
    "import_from_javascript",
    "patch_env",
    "python_from_rpc",
    "python_to_rpc",
    "waitUntil",
    "wait_until",
]

# what Cloudflare's module has and this one has not -> what to write instead
_REMEDIES = {
    "DurableObject": "there are no Durable Objects; KV, or a store that is fetched, keeps state",
    "WorkflowEntrypoint": "there are no workflows; a cron trigger, or a service binding, runs each step",
    "JSBody": "bodies are Python's: Body is their type",
    "WebSocket": "a worker has no WebSockets; stream the answer instead",
    "WebSocketPair": "a worker has no WebSockets; stream the answer instead",
}


def import_from_javascript(module_name: str) -> Any:
    """Return this module for `cloudflare:workers`; anything else is an `ImportError`."""
    import sys

    if module_name == "cloudflare:workers":
        return sys.modules[__name__]
    raise ImportError(
        f"import_from_javascript({module_name!r}): a worker runs in CPython, which has no JavaScript"
    )


def python_from_rpc(value: Any) -> Any:
    """Return the value: what comes from a binding is Python's already."""
    return value


def python_to_rpc(value: Any) -> Any:
    """Return the value: what goes to a binding is taken as it is."""
    return value


if not TYPE_CHECKING:
    # of this, type checkers would conclude that every name is here
    def __getattr__(name: str) -> Any:
        if name in _REMEDIES:
            raise ImportError(f"cannot import {name!r} from 'workers': {_REMEDIES[name]}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
