"""Generates the deployment of one machine, serves it, and ends it with itself."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import anyio

from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.catalog import CatalogEntry, load_catalog
from tenantry_runtime.deployment import Deployment, load_deployment, to_toml
from tenantry_runtime.deployment.plan import EDGE
from tenantry_runtime.edge.workers_config import WorkersConfig
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.pool.tls import is_loopback
from tenantry_runtime.supervisor.account import ACCOUNT
from tenantry_runtime.supervisor.address import Address, edge_address
from tenantry_runtime.supervisor.console import Console
from tenantry_runtime.supervisor.parts import Modules, write_parts
from tenantry_runtime.supervisor.readiness import patiently, runs_workers, until_ready
from tenantry_runtime.supervisor.state import StateDirectory, claim
from tenantry_runtime.supervisor.supervise import supervise

from .console import say_ready, say_starting, say_still_starting
from .generate import COMMENT, ONE_NODE, POOLS, one_machine

FILE = "deployment.toml"


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 8787,
    state_dir: Path = Path(".tenantry"),
    store: str | None = None,
    catalog: Path | None = None,
    cache: CacheName = "bf16",
    device: str = "cpu",
    pools: bool = False,
    unsafe_no_sandbox: bool = False,
    demo: bool = False,
) -> int:
    """Serve the catalog's models on this machine until a signal; return the exit code.

    Says on standard output what it does, and on standard error why it cannot. `store` is the URL of
    a PostgreSQL database to use instead of SQLite; `cache` is the format of the models' pages; they
    compute on `device`, that or "cuda:1"; with `pools` each phase is a node of its own. Workers run if this machine can confine them, or with
    `unsafe_no_sandbox` in any case. `demo` asks every model one question after the start.
    """
    console = Console(out=sys.stdout, errors=sys.stderr)
    try:
        address = Address(host, port)
        address.check_free()
        models = load_catalog(catalog)
        with claim(state_dir, (EDGE, *(POOLS if pools else ONE_NODE))) as state:
            file = one_machine(
                catalog=models,
                catalog_file=catalog,
                address=address,
                state_dir=state.path,
                store=store,
                cache=cache,
                device=device,
                has_pools=pools,
                workers=WorkersConfig(
                    is_optional=True,
                    unsafe_no_sandbox=unsafe_no_sandbox,
                    # to try triggers without waiting for them; nobody else calls here
                    test_scheduled=is_loopback(host),
                ),
                socket=state.socket,
            )
            path = state.run / FILE
            path.write_text(to_toml(file, comment=COMMENT))
            serving = _Serving(load_deployment(path), state, console, demo)
            return anyio.run(serving.run)
    except ConfigurationError as error:
        console.error(str(error))
        return 1
    except KeyboardInterrupt:
        # before there was anything to end
        return 0


@dataclass(frozen=True, slots=True)
class _Serving:
    deployment: Deployment
    state: StateDirectory
    console: Console
    wants_demo: bool

    @property
    def entries(self) -> tuple[CatalogEntry, ...]:
        return self.deployment.catalog.entries

    async def run(self) -> int:
        started_s = time.monotonic()
        say_starting(self.console, self.entries, self.state.path)
        parts = write_parts(self.deployment, self.deployment.part_names, self.state, Modules())
        return await supervise(
            parts, self.state, self.console, welcome=lambda: self._welcome(started_s)
        )

    async def _welcome(self, started_s: float) -> bool:
        """Say what is served once it is; False when that is impossible."""
        # loaded while the children start: they take a second, which the first answer would wait for
        from tenantry.credentials import credentials_path
        from tenantry_runtime.supervisor.access import grant_access

        from .demo import show_demo

        address = edge_address(self.deployment)
        curl_config = self.state.run / "curl.conf"
        credentials_file = credentials_path()
        await patiently(lambda: until_ready(address), self._say_slow)
        try:
            # not before: until it serves, what is there may be of another that does
            credentials = await grant_access(
                state_dir=self.state.path,
                store_url=self.deployment.edge.store,
                base_url=address.api_url,
                credentials_file=credentials_file,
                curl_config=curl_config,
            )
        except ConfigurationError as error:
            self.console.error(str(error))
            return False

        say_ready(
            self.console,
            entries=self.entries,
            address=address,
            account=ACCOUNT,
            credentials=credentials_file,
            curl_config=curl_config,
            took_s=time.monotonic() - started_s,
            workers_url=await self._workers_url(address),
            edge_log=self.state.log(EDGE),
        )
        if self.wants_demo:
            await show_demo(self.console, self.entries, credentials)
        return True

    async def _workers_url(self, address: Address) -> str | None:
        """Return where this account's workers are; None where none can run."""
        workers = self.deployment.edge.workers
        if workers is None or not await runs_workers(address):
            return None
        return f"http://NAME.{ACCOUNT}.{workers.domain}:{address.port}"

    def _say_slow(self) -> None:
        nodes = [node.name for node in self.deployment.nodes]
        say_still_starting(self.console, nodes, [self.state.log(name) for name in nodes])
