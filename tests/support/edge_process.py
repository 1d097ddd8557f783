"""An edge process beside a scripted node process, joined by a real Unix socket."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import anyio
import httpx
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream

from support.edges import State, make_state
from support.fake_node import start_process
from support.text import GLM_NANO, KIMI_NANO
from tenantry_runtime.text import load_text

MODELS = {"@cf/moonshotai/kimi-k2.6": KIMI_NANO, "@cf/zai-org/glm-5.2": GLM_NANO}


class Log:
    """What a process writes to its standard error."""

    def __init__(self, stream: ByteReceiveStream) -> None:
        self.text = ""
        self._stream = TextReceiveStream(stream)
        self._has_grown = anyio.Event()

    async def read(self) -> None:
        async for more in self._stream:
            self.text += more
            self._has_grown.set()
            self._has_grown = anyio.Event()

    async def grown(self) -> None:
        """Wait for more."""
        await self._has_grown.wait()

    async def says(self, mark: str) -> str:
        """Wait for a line with the mark, and return what follows the mark there."""
        with anyio.fail_after(60):
            while "\n" not in self.text.partition(mark)[2]:
                await self._has_grown.wait()
        return self.text.partition(mark)[2].partition("\n")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeProcess:
    process: Process
    url: str
    state: State
    log: Log

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(
            base_url=self.url, headers=self.state.headers, timeout=30
        ) as client:
            yield client

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tell the process to end, and return its exit code."""
        self.process.send_signal(number)
        with anyio.fail_after(30):
            return await self.process.wait()


@asynccontextmanager
async def an_edge_process(
    folder: Path,
    *,
    context_tokens: int | None = None,
    store: str | None = None,
    **config: object,
) -> AsyncIterator[EdgeProcess]:
    """Start an edge that is ready as soon as its node is."""
    state = await make_state(folder / "state", store_url=store)
    file = folder / "edge.json"
    file.write_text(
        json.dumps(
            {
                "port": 0,
                "nodes": [f"unix:{folder / 'node.sock'}"],
                "state_dir": "state",
                "catalog": "catalog.json",
                "store": store,
                **config,
            }
        )
    )
    models = [
        {
            "id": name,
            "aliases": [name.split("/")[-1]],
            "directory": str(directory),
            "context_tokens": context_tokens,
        }
        for name, directory in MODELS.items()
    ]
    (folder / "catalog.json").write_text(json.dumps({"models": models}))
    async with await anyio.open_process(
        [sys.executable, "-m", "tenantry_runtime.edge", str(file)], stdout=None, stderr=PIPE
    ) as process:
        assert process.stderr is not None
        log = Log(process.stderr)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log.read)
            try:
                url = await log.says("listening on ")
                yield EdgeProcess(process=process, url=url, state=state, log=log)
            finally:
                tasks.cancel_scope.cancel()
                if process.returncode is None:
                    process.kill()
                # pytest shows it with a test that fails
                sys.stderr.write(log.text)


@asynccontextmanager
async def a_scripted_node(
    folder: Path, says: str, *, step_s: float = 0.0
) -> AsyncIterator[Process]:
    """Start the node of `an_edge_process`; it says the text in a circle, to both models."""
    token_ids = load_text(KIMI_NANO).tokenizer.encode(says)
    file = folder / "node.json"
    engine = {"models": list(MODELS), "token_ids": token_ids, "step_s": step_s}
    file.write_text(json.dumps({"address": f"unix:{folder / 'node.sock'}", "engine": engine}))
    async with start_process("support.scripted_node", str(file)) as process:
        yield process
