"""Starts node and edge, waits until they serve, and ends them with itself."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec

from tenantry.credentials import credentials_path
from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.catalog import CatalogEntry, load_catalog
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.pool.loop_link import how_it_ended

from .address import Address
from .children import Child, start_child
from .console import Console
from .readiness import until_ready
from .state import StateDirectory, claim

EDGE_GRACE_S = 1.0
"""How long the edge lets connections close after Ctrl-C; less than a child has before it is killed."""

SLOW_START_S = 15.0
"""After which a word is due; large checkpoints take minutes."""


class Settings(NamedTuple):
    address: Address
    catalog: Path | None
    entries: tuple[CatalogEntry, ...]
    cache: CacheName
    wants_demo: bool


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 8787,
    state_dir: Path = Path(".tenantry"),
    catalog: Path | None = None,
    cache: CacheName = "bf16",
    demo: bool = False,
) -> int:
    """Serve the catalog's models on this machine until a signal; return the exit code.

    Says on standard output what it does, and on standard error why it cannot. `cache` is the format
    of the models' pages. `demo` asks every model one question after the start.
    """
    console = Console(out=sys.stdout, errors=sys.stderr)
    try:
        address = Address(host, port)
        address.check_free()
        entries = load_catalog(catalog).entries
        with claim(state_dir) as state:
            settings = Settings(address, catalog, entries, cache, demo)
            return anyio.run(_serve, settings, state, console)
    except ConfigurationError as error:
        console.error(str(error))
        return 1
    except KeyboardInterrupt:
        # before there was anything to end
        return 0


async def _serve(settings: Settings, state: StateDirectory, console: Console) -> int:
    started_s = time.monotonic()
    console.starting(settings.entries, state.path)
    with anyio.open_signal_receiver(*_stop_signals()) as signals:
        async with _children(settings, state) as children:
            exit_codes: list[int] = []
            async with anyio.create_task_group() as tasks:

                async def first_to_end(cause: Callable[[], Awaitable[int]]) -> None:
                    exit_codes.append(await cause())
                    tasks.cancel_scope.cancel()

                async def a_signal() -> int:
                    async for _ in signals:
                        break
                    return 0

                tasks.start_soon(first_to_end, a_signal)
                for child in children:
                    tasks.start_soon(first_to_end, lambda child=child: _death(child, console))
                tasks.start_soon(
                    first_to_end, lambda: _welcome(settings, state, console, started_s)
                )
            console.line("Stopping")
            # both at once; each is waited for on leaving its context
            for child in children:
                child.terminate()
    return exit_codes[0]


@asynccontextmanager
async def _children(
    settings: Settings, state: StateDirectory
) -> AsyncIterator[tuple[Child, Child]]:
    address = f"unix:{state.node_socket}"
    models = [{"id": entry.id, "directory": entry.directory} for entry in settings.entries]
    engine = {"models": models, "cache": settings.cache}
    node = _written(state, "node", {"address": address, "engine": engine})
    edge = _written(
        state,
        "edge",
        {
            "host": settings.address.host,
            "port": settings.address.port,
            "nodes": [address],
            "state_dir": str(state.path),
            "catalog": None if settings.catalog is None else str(settings.catalog.absolute()),
            "grace_s": EDGE_GRACE_S,
        },
    )
    async with (
        start_child("node", "tenantry_runtime.pool", str(node), log=state.log("node")) as first,
        start_child("edge", "tenantry_runtime.edge", str(edge), log=state.log("edge")) as second,
    ):
        yield first, second


def _stop_signals() -> list[signal.Signals]:
    stop = [signal.SIGINT, signal.SIGTERM]
    # ignored under nohup, where closing the terminal must not end anything
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        stop.append(signal.SIGHUP)
    return stop


def _written(state: StateDirectory, name: str, config: object) -> Path:
    path = state.run / f"{name}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(config)))
    return path


async def _death(child: Child, console: Console) -> int:
    """Wait until a child ends by itself, which is an error."""
    code = await child.process.wait()
    console.died(child.name, how_it_ended(code), child.log, child.log_tail())
    return 1


async def _welcome(
    settings: Settings, state: StateDirectory, console: Console, started_s: float
) -> int:
    """Say what is served once it is, and wait; return only when that is impossible."""
    # loaded while the children start: they take a second, which the first answer would wait for
    from .access import ACCOUNT, grant_access
    from .demo import show_demo

    curl_config = state.run / "curl.conf"
    credentials_file = credentials_path()
    try:
        credentials = await grant_access(
            state_dir=state.path,
            base_url=f"{settings.address.url}/client/v4",
            credentials_file=credentials_file,
            curl_config=curl_config,
        )
    except ConfigurationError as error:
        console.error(str(error))
        return 1

    with anyio.move_on_after(SLOW_START_S) as slowness:
        await until_ready(settings.address)
    if slowness.cancelled_caught:
        console.still_starting(state.log("node"))
        await until_ready(settings.address)
    console.ready(
        entries=settings.entries,
        address=settings.address,
        account=ACCOUNT,
        credentials=credentials_file,
        curl_config=curl_config,
        took_s=time.monotonic() - started_s,
    )
    if settings.wants_demo:
        await show_demo(console, settings.entries, credentials)
    await anyio.sleep_forever()
    raise AssertionError("unreachable")
