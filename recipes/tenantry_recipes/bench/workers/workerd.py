"""Cloudflare's own runtime, serving the same in JavaScript."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anyio.abc import Process

from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_recipes.bench.serving import free_port

from .client import Target
from .subjects import NUM_EVENTS

_CONFIG = """
using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .main)],
  sockets = [(name = "http", address = "127.0.0.1:{port}", http = (), service = "main")],
);
const main :Workerd.Worker = (
  modules = [(name = "worker", esModule = embed "worker.js")],
  compatibilityDate = "2025-01-01",
);
"""
_HELLO = 'export default { fetch() { return new Response("hello"); } };'
_MADE = """
export default {
  fetch() {
    const { readable, writable } = new TransformStream();
    const encoder = new TextEncoder();
    (async () => {
      const writer = writable.getWriter();
      for (let index = 0; index < NUM_EVENTS; index++) {
        await writer.write(encoder.encode(`data: {"index":${index},"response":" token"}\\n\\n`));
      }
      await writer.close();
    })();
    return new Response(readable, { headers: { "content-type": "text/event-stream" } });
  },
};
"""
SCRIPTS = {"hello": _HELLO, "made": _MADE.replace("NUM_EVENTS", str(NUM_EVENTS))}
START_S = 20.0


@contextmanager
def configured(script: str) -> Iterator[tuple[Path, int]]:
    """Write a configuration; yield it and its port."""
    with TemporaryDirectory(prefix="tenantry-workerd-") as folder:
        port = free_port()
        config = Path(folder) / "config.capnp"
        config.write_text(_CONFIG.replace("{port}", str(port)))
        (Path(folder) / "worker.js").write_text(script)
        yield config, port


@asynccontextmanager
async def serving(program: Path, script: str) -> AsyncIterator[Target]:
    """Run it until the block ends. Raises `BenchmarkError` if it does not answer."""
    with configured(script) as (config, port):
        process = await anyio.open_process(
            [program, "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            target = Target(port, "localhost", process.pid)
            await _first_response(target, process)
            yield target
        finally:
            process.kill()
            await process.wait()


async def cold_start_ms(program: Path) -> float:
    """Return the time from the start of its process to its first response."""
    began_s = time.perf_counter()
    async with serving(program, SCRIPTS["hello"]):
        return 1000 * (time.perf_counter() - began_s)


async def _first_response(target: Target, process: Process) -> None:
    with anyio.move_on_after(START_S):
        while process.returncode is None:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
            except OSError:
                # there is nothing to be told of when it listens
                await anyio.sleep(0.0005)
                continue
            writer.write(target.request())
            await reader.readuntil(b"\r\n\r\n")
            writer.close()
            return
    raise BenchmarkError("workerd does not answer")
