"""The control plane with nothing behind it that runs code: what is uploaded is compiled, and no more."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import httpx
from starlette.applications import Starlette

from support.secret_keys import FIRST, named_keys
from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.control import (
    ControlLimits,
    ControlServices,
    Dependencies,
    TailAddress,
    control_routes,
)
from tenantry_runtime.edge.server import EdgeServer, listening, url_of
from tenantry_runtime.tenancy import Authenticator, Scope, Store, open_store
from tenantry_runtime.tenancy.kv import KeyValues
from tenantry_runtime.tenancy.workers import WorkerStore
from tenantry_runtime.workers.bundles.blobs import StoredBundles
from tenantry_runtime.workers.interface import LoadError
from tenantry_runtime.workers.spec import WorkerVersion

ACME, GLOBEX = TenantId("acme"), TenantId("globex")
DOMAINS = {ACME: ["acme.example"]}

SCRIPT = "/client/v4/accounts/acme/workers/scripts/hello"

HELLO = (
    "from workers import Response, WorkerEntrypoint\n\n\n"
    "class Default(WorkerEntrypoint):\n"
    "    async def fetch(self, request):\n"
    "        return Response('hi')\n"
)

RAISES = "raise RuntimeError"
"""A source with these words fails its start-up check, at the line that has them."""


@dataclass(slots=True)
class CompilingCheck:
    """A start-up check that reads a version's files out of the store and compiles the modules."""

    bundles: StoredBundles
    startup_ms: float = 12.0
    checked: list[WorkerVersion] = field(default_factory=list)

    async def try_load(self, version: WorkerVersion, *, cpu_ms: float = 1000.0) -> float:
        self.checked.append(version)
        for file in version.files:
            content = await self.bundles.read(file)
            if file.content_type != "text/x-python":
                continue
            for number, line in enumerate(content.decode().splitlines(), 1):
                if RAISES in line:
                    trace = f'Traceback:\n  File "{file.path}", line {number}\n    {line}'
                    raise LoadError("RuntimeError", "no", path=file.path, line=number, trace=trace)
        return self.startup_ms


@dataclass(slots=True)
class Listed:
    """Tails that nobody listens to."""

    open_tails: dict[str, tuple[str, str]] = field(default_factory=dict)
    asked: list[Sequence[Mapping[str, Any]]] = field(default_factory=list)

    async def open(
        self,
        account: TenantId,
        worker: str,
        filters: Sequence[Mapping[str, Any]],
        *,
        base_url: str,
        client_ip: str,
    ) -> TailAddress:
        self.asked.append(filters)
        tail_id = uuid.uuid4().hex
        self.open_tails[tail_id] = (account, worker)
        url = f"{base_url.replace('http', 'ws', 1)}/tails/{tail_id}"
        return TailAddress(id=tail_id, url=url, expires_ms=1_800_000_000_000)

    async def close(self, account: TenantId, worker: str, tail_id: str) -> bool:
        if self.open_tails.get(tail_id) != (account, worker):
            return False
        del self.open_tails[tail_id]
        return True


@dataclass(slots=True, kw_only=True)
class ControlPlane:
    app: Starlette
    services: ControlServices
    check: CompilingCheck
    tails: Listed
    tokens: Mapping[str, str]
    """By account, and `run`: one of acme's that may only call models."""

    def resolve_with(self, dependencies: Dependencies) -> None:
        """Have what workers depend on resolved."""
        self.services = replace(self.services, dependencies=dependencies)
        self.app = Starlette(routes=control_routes(self.services))

    def hear_changes(self, changed: Callable[[TenantId], None]) -> None:
        """Tell whose workers were changed."""
        self.services = replace(self.services, changed=changed)
        self.app = Starlette(routes=control_routes(self.services))

    @property
    def workers(self) -> WorkerStore:
        return self.services.workers

    @asynccontextmanager
    async def client(self, token: str = ACME) -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app),
            base_url="http://edge",
            headers={"authorization": f"Bearer {self.tokens[token]}"},
        ) as client:
            yield client

    async def ask(self, method: str, path: str, token: str = ACME, **options: Any) -> Answer:
        """Send one request; `path` that begins with no slash is below the worker `hello`."""
        url = path if path.startswith("/") else f"{SCRIPT}/{path}".rstrip("/")
        async with self.client(token) as client:
            return Answer(await client.request(method, url, **options))

    async def upload(self, path: str = "", *, method: str = "", **upload: Any) -> Answer:
        """Put the worker `hello`, or post a version of it."""
        method = method or ("POST" if path else "PUT")
        return await self.ask(method, path, files=an_upload(**upload))


class Answer:
    """What came back, and what of it a test looks at."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.status = response.status_code

    @property
    def body(self) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self.response.content)
        return decoded

    @property
    def result(self) -> Any:
        assert self.body["success"], self.body
        return self.body["result"]

    @property
    def code(self) -> int:
        (error,) = self.body["errors"]
        assert self.body["success"] is False
        return int(error["code"])

    @property
    def message(self) -> str:
        return str(self.body["errors"][0]["message"])


def an_upload(
    modules: Mapping[str, tuple[bytes | str, str]] | None = None, **metadata: Any
) -> list[tuple[str, tuple[str, bytes | str, str]]]:
    """Return a form as httpx takes it; metadata has the main module unless it is given."""
    files = {"entry.py": (HELLO, "text/x-python")} if modules is None else modules
    given = {"main_module": "entry.py", **metadata}
    return [
        ("metadata", ("metadata", json.dumps(given), "application/json")),
        *((name, (name, content, kind)) for name, (content, kind) in files.items()),
    ]


@asynccontextmanager
async def a_control_plane(
    store: Store, directory: Path, *, limits: ControlLimits | None = None
) -> AsyncIterator[ControlPlane]:
    tokens: dict[str, str] = {}
    for account in (ACME, GLOBEX):
        await store.create_account(account)
        made = await store.create_token(account, name="test", scopes=[Scope.DEPLOY])
        tokens[account] = made.secret
    tokens["run"] = (await store.create_token(ACME, name="run")).secret
    workers = WorkerStore(store.database, named_keys(FIRST), domains=DOMAINS)
    # nobody asks for a set of dependencies
    bundles = StoredBundles(workers.blobs, directory / "bundles", dependencies=str)
    check = CompilingCheck(bundles)
    tails = Listed()
    services = ControlServices(
        authenticator=Authenticator(store),
        store=store,
        workers=workers,
        kv=KeyValues(store.database),
        startup=check,
        tails=tails,
        limits=limits or ControlLimits(),
    )
    yield ControlPlane(
        app=Starlette(routes=control_routes(services)),
        services=services,
        check=check,
        tails=tails,
        tokens=tokens,
    )


async def serve(directory: Path) -> None:
    """Serve until killed; print address and token first."""
    async with open_store(directory) as store, a_control_plane(store, directory) as plane:
        with listening("127.0.0.1", 0) as bound:
            print(json.dumps({"url": url_of(bound), "token": plane.tokens[ACME]}), flush=True)
            await EdgeServer(plane.app, bound).serve()


if __name__ == "__main__":
    anyio.run(serve, Path(sys.argv[1]))
