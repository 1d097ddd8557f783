"""An edge around a fake node: its application, its store, and ways to call it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx
from opentelemetry.trace import NoOpTracer, Tracer
from starlette.applications import Starlette
from starlette.types import Message

from support.plain_text import GLM, KIMI, an_offer
from support.requests import a_body
from tenantry_runtime.catalog import Catalog
from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.app import build_app
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.edge.incidents import QuotaStorms
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.edge.offer import Offer, Offers
from tenantry_runtime.edge.open_requests import OpenRequests
from tenantry_runtime.edge.services import Services
from tenantry_runtime.pool.interface import TokenSource
from tenantry_runtime.tenancy import Authenticator, open_store
from tenantry_runtime.tenancy.limits import open_limiter

LIMIT_TIMEOUT_S = 30.0
"""More than a test's machine needs, however busy it is."""

ACCOUNT = "dev"
OTHER_ACCOUNT = "other"

RUN = f"/client/v4/accounts/{ACCOUNT}/ai/run/kimi-k2.6"
SEARCH = f"/client/v4/accounts/{ACCOUNT}/ai/models/search"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A state directory with two accounts, and a token of each."""

    directory: Path
    token: str
    other_token: str
    store_url: str | None = None
    """None: SQLite in the directory."""

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}


async def make_state(directory: Path, *, store_url: str | None = None) -> State:
    async with open_store(directory, url=store_url) as store:
        tokens = []
        for account in (TenantId(ACCOUNT), TenantId(OTHER_ACCOUNT)):
            await store.create_account(account)
            tokens.append((await store.create_token(account, name="test")).secret)
    return State(directory=directory, token=tokens[0], other_token=tokens[1], store_url=store_url)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    app: Starlette
    services: Services
    state: State

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """Call the application without a socket. A streamed body arrives when it is whole."""
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app),
            base_url="http://edge",
            headers=self.state.headers,
        ) as client:
            yield client

    async def run(self, **fields: Any) -> httpx.Response:
        """Post one request to the model."""
        async with self.client() as client:
            return await client.post(RUN, content=a_body(**fields))

    async def get(self, path: str, **query: str) -> httpx.Response:
        async with self.client() as client:
            return await client.get(path, params=query)


@asynccontextmanager
async def an_edge(
    state: State,
    node: TokenSource | Sequence[TokenSource],
    *,
    limits: Limits | None = None,
    tracer: Tracer | None = None,
    offers: Sequence[Offer] | None = None,
    show_routing: bool = False,
    limit_timeout_s: float = LIMIT_TIMEOUT_S,
    storms: QuotaStorms | None = None,
) -> AsyncIterator[Edge]:
    limits = limits or Limits()
    offers = offers or [an_offer(KIMI), an_offer(GLM)]
    async with (
        open_store(state.directory, url=state.store_url) as store,
        open_limiter(store.database, timeout_s=limit_timeout_s) as limiter,
    ):
        services = Services(
            offers=Offers(Catalog([offer.entry for offer in offers]), offers),
            nodes=Nodes(node if isinstance(node, Sequence) else [node]),
            store=store,
            authenticator=Authenticator(store),
            tracer=tracer or NoOpTracer(),
            open_requests=OpenRequests(limits.max_requests),
            threads=anyio.CapacityLimiter(1),
            limits=limits,
            limiter=limiter,
            storms=storms,
            show_routing=show_routing,
        )
        yield Edge(app=build_app(services), services=services, state=state)


@dataclass(slots=True, eq=False, kw_only=True)
class AsgiCall:
    """One request at the application's own interface, where a client can leave or stop reading."""

    edge: Edge
    body: bytes | None
    """None when it has been sent."""
    path: str = RUN
    sent: list[Message] = field(default_factory=list)
    """What the application has sent."""
    takes: bool = True
    """Whether the client reads; to be set before it does."""
    leaves: anyio.Event = field(default_factory=anyio.Event)
    """Set it, and the client is gone."""
    has_sent: anyio.Event = field(default_factory=anyio.Event)
    """Set when the first piece of a body has been sent."""

    async def __call__(self) -> None:
        headers = [
            (name.encode(), value.encode()) for name, value in self.edge.state.headers.items()
        ]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": self.path,
            "raw_path": self.path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        await self.edge.app(scope, self._receive, self._send)

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def printed(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def is_complete(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body") is False

    async def _receive(self) -> Message:
        if self.body is not None:
            body, self.body = self.body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if not self.takes and message["type"] == "http.response.body":
            await anyio.sleep_forever()
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.has_sent.set()
