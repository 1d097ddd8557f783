"""`workerctl serve`: starts what belongs to this machine, and says when it serves."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import msgspec

from tenantry_runtime.core import TenantId
from tenantry_runtime.deployment import Deployment, Node, load_deployment
from tenantry_runtime.deployment.plan import EDGE
from tenantry_runtime.errors import ConfigurationError

from .address import edge_address
from .console import Console, listed
from .overview import overview
from .parts import Modules, Part, check_present, chosen_parts, write_parts
from .readiness import patiently, until_node_ready, until_ready
from .state import StateDirectory, claim
from .supervise import supervise


def serve(
    file: Path,
    *,
    only: Sequence[str] = (),
    grant: str | None = None,
    unsafe_no_sandbox: bool = False,
    modules: Modules | None = None,
) -> int:
    """Run parts of a deployment until a signal; return the exit code.

    Those named by `only`, or those that are at loopback addresses. `grant` is an account that is
    made if need be, and whose token is left where clients on this machine look for it. With
    `unsafe_no_sandbox` workers run however little this machine can confine them. Says on standard output what it does, and on standard error why it cannot.
    """
    console = Console(out=sys.stdout, errors=sys.stderr)
    try:
        deployment = load_deployment(file)
        if unsafe_no_sandbox:
            deployment = without_sandbox(deployment)
        names = chosen_parts(deployment, only)
        if grant is not None and EDGE not in names:
            raise ConfigurationError("--grant is for where the edge runs, and it does not run here")
        check_present(deployment, names)
        if EDGE in names:
            edge_address(deployment).check_free("edge.port")
        with claim(deployment.state_dir, names, option="state_dir") as state:
            parts = write_parts(deployment, names, state, modules or Modules())
            running = _Serving(deployment, parts, state, console, grant)
            return anyio.run(running.run)
    except ConfigurationError as error:
        console.error(str(error))
        return 1
    except KeyboardInterrupt:
        # before there was anything to end
        return 0


def without_sandbox(deployment: Deployment) -> Deployment:
    """Return a deployment whose workers run however little the machine confines them.

    Raises `ConfigurationError` where there are no workers.
    """
    workers = deployment.edge.workers
    if workers is None:
        raise ConfigurationError(
            f"--unsafe-no-sandbox is for workers, and {deployment.file} has no table [workers]"
        )
    edge = replace(
        deployment.edge, workers=msgspec.structs.replace(workers, unsafe_no_sandbox=True)
    )
    return replace(deployment, edge=edge)


@dataclass(frozen=True, slots=True)
class _Serving:
    deployment: Deployment
    parts: tuple[Part, ...]
    state: StateDirectory
    console: Console
    account: str | None

    async def run(self) -> int:
        started = {part.name for part in self.parts}
        names = [name for name in self.deployment.part_names if name in started]
        self.console.line(f"Starting {listed(names)}")
        self.console.line(f"State and logs: {self.state.path}")
        self.console.line()
        self.console.write(overview(self.deployment, names))
        self.console.line()
        return await supervise(self.parts, self.state, self.console, welcome=self._welcome)

    async def _welcome(self) -> bool:
        started_s = time.monotonic()
        if self.account is not None and not await self._grant(self.account):
            return False
        nodes = {node.name: node for node in self.deployment.nodes}
        async with anyio.create_task_group() as tasks:
            for part in self.parts:
                tasks.start_soon(self._announce, part, nodes.get(part.name), started_s)
        self.console.line()
        self.console.line("Ctrl-C ends everything here.")
        return True

    async def _announce(self, part: Part, node: Node | None, started_s: float) -> None:
        def say_slow() -> None:
            log = self.state.log(part.name)
            wait = "loading" if node else "waiting until every model is served"
            self.console.line(f"{part.name} is still {wait}; what it says is in {log}")

        await patiently(lambda: self._until_ready(node), say_slow)
        took_s = time.monotonic() - started_s
        served = "" if node else ": every model is served"
        self.console.line(f"{part.name} is ready after {took_s:.1f} s{served}")

    async def _until_ready(self, node: Node | None) -> None:
        if node is None:
            await until_ready(edge_address(self.deployment))
        else:
            await until_node_ready(node)

    async def _grant(self, account: str) -> bool:
        # they take half a second to load, while the parts start
        from tenantry.credentials import credentials_path

        from .access import grant_access

        url = edge_address(self.deployment).api_url
        file = credentials_path()
        try:
            await grant_access(
                TenantId(account),
                state_dir=self.deployment.edge.state_dir,
                store_url=self.deployment.edge.store,
                base_url=url,
                credentials_file=file,
                curl_config=self.state.run / "curl.conf",
                token_name="workerctl serve",
            )
        except ConfigurationError as error:
            self.console.error(str(error))
            return False
        self.console.line(f"Account {account} at {url}, credentials in {file}")
        return True
