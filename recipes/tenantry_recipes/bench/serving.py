"""This runtime as users meet it: nodes and an edge in processes of their own."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import msgspec

from tenantry_runtime.core import Message
from tenantry_runtime.engine.config import NodeConfig
from tenantry_runtime.supervisor.access import grant_access
from tenantry_runtime.supervisor.account import ACCOUNT
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
    """A running edge and its nodes, with one model."""

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


def serving(
    engine: NodeConfig, state_dir: Path, *, text_directory: Path
) -> AbstractAsyncContextManager[Served]:
    """Serve the one model of `engine`, with the vocabulary in `text_directory`, for a while."""
    return serving_nodes({"node": engine}, state_dir, text_directory=text_directory)


@asynccontextmanager
async def serving_nodes(
    engines: Mapping[str, NodeConfig], state_dir: Path, *, text_directory: Path
) -> AsyncIterator[Served]:
    """Serve one model from several nodes for a while; they go by names of `StateDirectory.sockets`."""
    (model,) = {model.id for engine in engines.values() for model in engine.models}
    address = Address(LOOPBACK, free_port())
    with claim(state_dir) as state:
        edge = _write_edge(state, model, address, tuple(engines), text_directory)
        async with AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(start_node(state, name, engine))
                for name, engine in engines.items()
            ]
            child = start_child("edge", "tenantry_runtime.edge", edge, log=state.log("edge"))
            children = (*nodes, await stack.enter_async_context(child))
            credentials = await grant_access(
                state_dir=state.path,
                base_url=address.api_url,
                credentials_file=state.run / "credentials.json",
                curl_config=state.run / "curl.conf",
            )
            await _until_ready(address, children)
            yield Served(
                address=address,
                model=model,
                api_token=credentials.api_token,
                children=children,
            )


def start_node(
    state: StateDirectory,
    name: str,
    engine: msgspec.Struct,
    *,
    module: str = "tenantry_runtime.pool",
) -> AbstractAsyncContextManager[Child]:
    """Run a node at `node_address`; it is not ready yet. `engine` is what `module` builds its loop of."""
    node = {"address": node_address(state, name), "engine": engine}
    config = str(_written(state, name, node))
    return start_child(name, module, config, log=state.log(name))


def node_address(state: StateDirectory, name: str) -> str:
    return f"unix:{state.socket(name)}"


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.create_server((LOOPBACK, 0)) as bound:
        port: int = bound.getsockname()[1]
        return port


def _write_edge(
    state: StateDirectory, model: str, address: Address, nodes: Sequence[str], text_directory: Path
) -> str:
    catalog = {"models": [{"id": model, "directory": str(text_directory)}]}
    edge = {
        "host": address.host,
        "port": address.port,
        "nodes": [node_address(state, name) for name in nodes],
        "state_dir": str(state.path),
        "catalog": str(_written(state, "catalog", catalog)),
    }
    return str(_written(state, "edge", edge))


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
