"""This runtime as users meet it: a node and an edge in processes of their own."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import msgspec

from tenantry_runtime.core import Message
from tenantry_runtime.engine.config import NodeConfig
from tenantry_runtime.supervisor.access import ACCOUNT, grant_access
from tenantry_runtime.supervisor.address import Address
from tenantry_runtime.supervisor.children import Child, start_child
from tenantry_runtime.supervisor.readiness import until_ready
from tenantry_runtime.supervisor.state import StateDirectory, claim

from .contender import BenchPrompt
from .errors import BenchmarkError
from .memory import family_peak_bytes
from .stream_client import StreamRequest

LOOPBACK = "127.0.0.1"

START_TIMEOUT_S = 120.0
"""Until a runtime that is asked to start must be ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running edge and node, with one model."""

    address: Address
    model: str
    api_token: str
    children: tuple[Child, ...]

    def request(self, prompt: BenchPrompt, num_tokens: int) -> StreamRequest:
        """Make the call that streams `num_tokens` tokens, greedily."""
        return run_request(
            self.address,
            account=ACCOUNT,
            api_token=self.api_token,
            model=self.model,
            inputs={
                "messages": [_message(message) for message in prompt.messages],
                "chat_template_kwargs": {
                    "thinking": prompt.options.thinking is not False,
                    "preserve_thinking": bool(prompt.options.preserve_thinking),
                },
                "temperature": 0,
                "max_tokens": num_tokens,
                "stream": True,
            },
        )

    def peak_bytes(self) -> int:
        return sum(family_peak_bytes(child.process.pid) for child in self.children)


def run_request(
    address: Address, *, account: str, api_token: str, model: str, inputs: dict[str, object]
) -> StreamRequest:
    """Make a call of one model."""
    return StreamRequest(
        host=address.reachable_host,
        port=address.port,
        path=f"/client/v4/accounts/{account}/ai/run/{model}",
        headers=(("Authorization", f"Bearer {api_token}"),),
        body=msgspec.json.encode(inputs),
    )


@asynccontextmanager
async def serving(
    engine: NodeConfig, state_dir: Path, *, text_directory: Path
) -> AsyncIterator[Served]:
    """Serve the one model of `engine`, with the vocabulary in `text_directory`, for a while."""
    (model,) = engine.models
    address = Address(LOOPBACK, free_port())
    with claim(state_dir) as state:
        node, edge = _write_configs(state, engine, address, text_directory)
        async with (
            start_child("node", "tenantry_runtime.pool", node, log=state.log("node")) as first,
            start_child("edge", "tenantry_runtime.edge", edge, log=state.log("edge")) as second,
        ):
            children = (first, second)
            credentials = await grant_access(
                state_dir=state.path,
                base_url=f"{address.url}/client/v4",
                credentials_file=state.run / "credentials.json",
                curl_config=state.run / "curl.conf",
            )
            await _until_ready(address, children)
            yield Served(
                address=address,
                model=model.id,
                api_token=credentials.api_token,
                children=children,
            )


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.create_server((LOOPBACK, 0)) as bound:
        port: int = bound.getsockname()[1]
        return port


def _write_configs(
    state: StateDirectory, engine: NodeConfig, address: Address, text_directory: Path
) -> tuple[str, str]:
    node_address = f"unix:{state.socket('node')}"
    (model,) = engine.models
    catalog = {"models": [{"id": model.id, "directory": str(text_directory)}]}
    edge = {
        "host": address.host,
        "port": address.port,
        "nodes": [node_address],
        "state_dir": str(state.path),
        "catalog": str(_written(state, "catalog", catalog)),
    }
    node = {"address": node_address, "engine": engine}
    return str(_written(state, "node", node)), str(_written(state, "edge", edge))


def _written(state: StateDirectory, name: str, value: object) -> Path:
    path = state.run / f"{name}.json"
    path.write_bytes(msgspec.json.encode(value))
    return path


async def _until_ready(address: Address, children: Sequence[Child]) -> None:
    with anyio.move_on_after(START_TIMEOUT_S) as deadline:
        await until_ready(address)
    if deadline.cancelled_caught:
        tails = "\n".join(line for child in children for line in child.log_tail())
        raise BenchmarkError(f"the runtime is not ready after {START_TIMEOUT_S:.0f} s:\n{tails}")


def _message(message: Message) -> dict[str, object]:
    reasoning = {} if message.reasoning is None else {"reasoning": message.reasoning}
    return {"role": message.role, "content": message.content, **reasoning}
