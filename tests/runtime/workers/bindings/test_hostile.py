"""Whatever a worker calls its bindings with: an answer or a refusal, and never anything else."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.bindings import MODEL, TENANT, Caller, World, a_version, a_world
from support.byte_streams import Pieces
from support.web import Names
from tenantry_runtime.workers.interface import (
    CallRefused,
    HttpResponse,
    StreamResult,
    WorkerFailed,
)
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import (
    AiBinding,
    KvBinding,
    ServiceBinding,
    TextBinding,
)

DEEP: Any = []
for _ in range(500):
    DEEP = [DEEP]

VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    (1 << 64) - 1,
    -(1 << 63),
    0.5,
    float("nan"),
    float("inf"),
    "",
    "k",
    "\0",
    "\ud800",
    "a\r\nb: c",
    "../../x",
    "x" * 300_000,
    b"",
    b"\xff" * 1000,
    [],
    ["k"],
    [None],
    [["a", "b"]],
    DEEP,
    {},
    {"": None},
    {1: 2},
    {b"a": b"b"},
    {"type": "json", "prefix": 1, "limit": -1, "cursor": []},
    {"expirationTtl": 1 << 62, "metadata": DEEP},
    {"expiration": -1e300},
    {"stream": True, "prompt": DEEP},
    {"messages": [{"role": "user", "content": "x"}], "stream": "yes"},
    {"request_id": DEEP},
    {"requests": [DEEP, {}]},
    {"extraHeaders": {"x-session-affinity": "\n"}, "queueRequest": 1},
    {"returnRawResponse": True},
    {"redirect": "follow"},
    "http://127.0.0.1/",
    "http://[::1/",
    MODEL,
]

METHODS = {
    "AI": ("run", "models", "nonsense"),
    "KV": ("get", "getWithMetadata", "put", "delete", "list", "nonsense"),
    "SVC": ("fetch", "add", "__init__"),
    "TEXT": ("get",),
    "FETCH": ("fetch", "nonsense"),
    "NONE": ("get",),
}


class _Engine:
    """Fails each call, as workers do."""

    def fetch(self, *_: object) -> Any:
        raise WorkerFailed(Outcome.EXCEPTION, "it broke")

    async def rpc(self, *_: object) -> object:
        raise WorkerFailed(Outcome.EXCEPTION, "it broke")

    async def scheduled(self, *_: object) -> None:
        raise AssertionError

    async def try_load(self, *_: object, **__: object) -> float:
        raise AssertionError


async def a_hostile_caller(world: World) -> Caller:
    namespace = await world.edge.services.store.kv.create_namespace(TENANT, "notes")
    world.versions.known.append(a_version(worker="callee"))
    world.bindings.attach(_Engine())
    return world.caller(
        AiBinding(name="AI"),
        KvBinding(name="KV", namespace_id=namespace.id),
        ServiceBinding(name="SVC", service="callee"),
        TextBinding(name="TEXT", text="x"),
    )


async def check(caller: Caller, binding: str, method: str, args: list[Any]) -> None:
    """Call; what comes is what a frame, or a stream, can carry."""
    body = Pieces(b'{"prompt": "x"}') if len(args) % 2 else None
    try:
        answer = await caller.bindings.call(caller.context, binding, method, args, body)
    except CallRefused as refused:
        assert refused.name
        assert 0 < len(refused.message) < 2000
        answer = None
    match answer:
        case StreamResult(stream=stream):
            await stream.aclose()
        case HttpResponse(body=bytes()):
            pass
        case HttpResponse(body=stream):
            await stream.aclose()  # type: ignore[union-attr]
        case value:
            msgspec.msgpack.encode(value)
    assert body is None or body.is_closed


@pytest.mark.asyncio
async def test_each_value_at_each_place_is_answered_or_refused(tmp_path: Path) -> None:
    async with a_world(tmp_path, resolve=Names()) as world:
        caller = await a_hostile_caller(world)
        for binding, methods in METHODS.items():
            for method, value in itertools.product(methods, VALUES):
                await check(caller, binding, method, [value])
                await check(caller, binding, method, ["k", value])
                await check(caller, binding, method, ["k", "v", value])
        for value in VALUES:
            await check(caller, "AI", "run", [value, {"prompt": "x"}])
            await check(caller, "AI", "run", [MODEL, value])
            await check(caller, "AI", "run", [MODEL, {"prompt": "x"}, value])
            await check(caller, "SVC", "fetch", ["GET", "http://x/", value])
            await check(caller, "FETCH", "fetch", ["POST", "http://x/", value, value, value])
            await check(caller, "KV", "get", [value] * 9)
