"""Both models, served by `workerctl dev` and asked as a user asks them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.command_line import PROGRAM
from support.dev_server import LAST_LINE, DevServer, a_dev_server
from support.endless_model import NAME, a_catalog_of_an_endless_model
from support.fake_node import until_running
from support.network import remote_peers
from tenantry_recipes.bench.memory import family_of
from tenantry_runtime.pool.client import connect

MODELS = pytest.mark.parametrize("model", ["kimi-k2.6", "@cf/zai-org/glm-5.2"])

ENDLESS = {"prompt": "Go on.", "temperature": 0, "max_tokens": 3900, "stream": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with a_dev_server(tmp_path_factory.mktemp("dev")) as server:
        server.wait_for_line(LAST_LINE)
        yield server


def a_client(server: DevServer) -> httpx.Client:
    headers = {"Authorization": f"Bearer {server.credentials.api_token}"}
    return httpx.Client(base_url=_runs(server), headers=headers, timeout=60)


def _runs(server: DevServer) -> str:
    return f"http://127.0.0.1:{server.port}/client/v4/accounts/dev/ai/run/"


def streamed(response: httpx.Response) -> list[str]:
    """The data of each event."""
    return [
        line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data")
    ]


@MODELS
def test_a_streamed_answer_is_the_whole_answer_in_pieces(server: DevServer, model: str) -> None:
    body = {"prompt": "What is 17 + 25?", "temperature": 0, "max_tokens": 200}
    with a_client(server) as client:
        whole = client.post(model, json=body).json()
        with client.stream("POST", model, json=body | {"stream": True}) as response:
            *events, done = streamed(response)

    assert whole["success"] is True
    chunks = [json.loads(event) for event in events]
    assert done == "[DONE]"
    message = whole["result"]["choices"][0]["message"]
    for field in ("content", "reasoning_content"):
        assert joined(chunks, field) == (message.get(field) or "")
    assert joined(chunks, "content") + joined(chunks, "reasoning_content") != ""
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    assert usages[-1]["completion_tokens"] == whole["result"]["usage"]["completion_tokens"] > 0


def test_every_use_of_pages_is_checked_in_both_phases_of_both_models(server: DevServer) -> None:
    reported = subprocess.run(
        [sys.executable, "-c", PROGRAM, "models", "coverage", "--json"],
        env=server.environment,
        capture_output=True,
        check=True,
    )
    report = json.loads(reported.stdout)
    assert report["all_checked"] is True
    assert {(op["model"], op["phase"]) for op in report["ops"]} == {
        (model, phase)
        for model in ("@cf/moonshotai/kimi-k2.6", "@cf/zai-org/glm-5.2")
        for phase in ("prefill", "decode")
    }


def joined(chunks: list[dict[str, Any]], field: str) -> str:
    deltas = (choice["delta"] for chunk in chunks for choice in chunk["choices"])
    return "".join(delta.get(field) or "" for delta in deltas)


def test_local_development_asks_the_model_here_and_nobody_elsewhere(server: DevServer) -> None:
    connected: set[str] = set()
    with (
        a_client(server) as client,
        client.stream("POST", "kimi-k2.6", json={**ENDLESS, "max_tokens": 20}) as response,
    ):
        # while it is being answered, and with the token that the server made for itself
        assert response.status_code == 200
        for _ in response.iter_lines():
            connected |= remote_peers(family_of(server.process.pid))

    assert connected == set()


@pytest.mark.asyncio
async def test_a_client_that_hangs_up_stops_its_answer_and_no_other(tmp_path: Path) -> None:
    with a_dev_server(tmp_path, catalog=a_catalog_of_an_endless_model(tmp_path)) as server:
        server.wait_for_line(LAST_LINE)
        headers = {"Authorization": f"Bearer {server.credentials.api_token}"}
        async with (
            connect(f"unix:{server.state_dir / 'run' / 'node.sock'}") as node,
            httpx.AsyncClient(base_url=_runs(server), headers=headers, timeout=60) as client,
        ):
            await node.ready()
            async with client.stream("POST", NAME, json=ENDLESS) as staying:
                # kept, since httpx closes a response whose iterator is collected
                lines = aiter(staying.aiter_lines())
                async with client.stream("POST", NAME, json=ENDLESS) as leaving:
                    lines_left_unread = aiter(leaving.aiter_lines())
                    await next_event(lines_left_unread)
                    await until_running(node, 2)

                # the other has as far to go, so the one that hung up has not come to its end
                await until_running(node, 1)
                assert (await next_event(lines))["choices"][0]["finish_reason"] is None

            await until_running(node, 0)


async def next_event(lines: AsyncIterator[str]) -> dict[str, Any]:
    async for line in lines:
        if line.startswith("data: "):
            event: dict[str, Any] = json.loads(line.removeprefix("data: "))
            return event
    raise AssertionError("the stream has ended")


def test_the_printed_commands_work_as_they_are(server: DevServer) -> None:
    """What stands between `Try in another terminal:` and the last line, in a shell."""
    tries = "\n".join(server.lines).partition("Try in another terminal:")[2]
    commands = [part for part in tries.replace(LAST_LINE, "").split("\n\n") if part.strip()]
    assert len(commands) == 3

    for command in commands:
        # as if the environment were activated
        command = command.replace("workerctl", f"'{sys.executable}' -c \"{PROGRAM}\"")
        command = command.replace("python -c", f"'{sys.executable}' -c")
        if "curl" in command and shutil.which("curl") is None:
            continue
        result = subprocess.run(
            command,
            shell=True,
            env=server.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert result.returncode == 0, (command, result.stdout, result.stderr)
        if "curl" in command:
            assert json.loads(result.stdout)["success"] is True


def test_a_second_server_on_the_same_port_is_refused_before_it_begins(
    server: DevServer, tmp_path: Path
) -> None:
    with a_dev_server(tmp_path, port=server.port) as second:
        assert second.wait_for_end() == 1

    assert f"port {server.port} is in use; choose another with --port" in second.lines[-1]
    assert not second.state_dir.exists()


def test_a_second_server_on_the_same_state_is_refused(server: DevServer) -> None:
    with a_dev_server(server.folder) as second:
        assert second.wait_for_end() == 1

    assert f"process {server.process.pid} uses the state directory" in second.lines[-1]
    assert "--state-dir" in second.lines[-1]
