"""The edge as a process: how it starts, serves through a node, and ends."""

from __future__ import annotations

import array
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import httpx
import pytest

from support.edge_process import a_scripted_node, an_edge_process
from support.edges import RUN, SEARCH
from support.processes import children_of
from support.requests import a_body
from tenantry_runtime.edge.__main__ import main
from tenantry_runtime.tenancy import IncidentKind, IncidentRecord, open_store


async def until_stalled(connection: socket.socket) -> None:
    """Wait until the answer no longer grows, as all buffers on its way are full."""
    seen = -1
    # nothing tells when a peer's buffers are full
    while seen < (seen := waiting_bytes(connection)) or seen == 0:  # noqa: ASYNC110
        await anyio.sleep(0.2)


def waiting_bytes(connection: socket.socket) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(connection, termios.FIONREAD, count)
    return count[0]


def mapped_files(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.asyncio
async def test_both_models_answer_through_edge_and_node(tmp_path: Path) -> None:
    async with an_edge_process(tmp_path) as edge, edge.client() as client:
        # the edge is there before its node
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/ready")).status_code == 503
        early = await client.post(RUN, content=a_body())
        assert (early.status_code, early.json()["errors"][0]["code"]) == (503, 7009)

        async with a_scripted_node(tmp_path, "Hello there"):
            await edge.log.says("connected to node")
            fields = {"max_tokens": 2, "chat_template_kwargs": {"thinking": False}}
            for model in ("kimi-k2.6", "@cf/zai-org/glm-5.2"):
                path = RUN.replace("kimi-k2.6", model)
                whole = await client.post(path, content=a_body(**fields))
                streamed = await client.post(path, content=a_body(stream=True, **fields))

                assert whole.status_code == 200
                [choice] = whole.json()["result"]["choices"]
                assert choice["finish_reason"] == "length"
                assert choice["message"]["content"]
                assert streamed.text.endswith("data: [DONE]\n\n")

            assert (await client.get("/ready")).status_code == 200

        await edge.log.says("lost node")
        assert (await client.get("/ready")).status_code == 503
        assert await edge.end() == 0


@pytest.mark.asyncio
async def test_an_edge_deletes_incidents_that_are_kept_no_longer(tmp_path: Path) -> None:
    old = IncidentRecord(id="old", kind=IncidentKind.DRAIN, began_ms=1, seen_ms=1)
    async with open_store(tmp_path / "state") as store:
        young = replace(old, id="young", began_ms=store.database.now_ms())
        await store.incidents.record([old, young])

    async with (
        an_edge_process(tmp_path, incidents={"keep_days": 1}),
        open_store(tmp_path / "state") as store,
    ):
        with anyio.fail_after(60):
            while await store.incidents.named("old"):
                await anyio.lowlevel.checkpoint()
        assert await store.incidents.list() == [young]


@pytest.mark.asyncio
async def test_the_context_of_a_model_is_what_its_checkpoint_says(tmp_path: Path) -> None:
    async with an_edge_process(tmp_path) as edge, edge.client() as client:
        models = (await client.get(SEARCH)).json()["result"]

    properties = [entry for model in models for entry in model["properties"]]
    contexts = [p["value"] for p in properties if p["property_id"] == "context_window"]
    assert contexts == ["4096", "4096"]


@pytest.mark.asyncio
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
async def test_a_signal_ends_streams_with_an_error_and_the_process_with_zero(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with (
        # which nothing that ends has to wait for
        an_edge_process(tmp_path, grace_s=600) as edge,
        a_scripted_node(tmp_path, "a", step_s=0.01),
        edge.client() as client,
    ):
        await edge.log.says("connected to node")
        async with client.stream("POST", RUN, content=a_body(stream=True)) as response:
            received = response.aiter_text()
            text = await anext(received)
            edge.process.send_signal(number)
            text += "".join([more async for more in received])

        # not signaled again: whoever has ended its work takes a second signal as anyone would
        with anyio.fail_after(30):
            assert await edge.process.wait() == 0

    last = json.loads(text.split("\n\n")[-2].removeprefix("data: "))
    assert last["errors"][0]["code"] == 7009
    assert "[DONE]" not in text


@pytest.mark.asyncio
async def test_a_client_that_neither_reads_nor_closes_does_not_hold_up_the_end(
    tmp_path: Path,
) -> None:
    async with (
        an_edge_process(tmp_path, context_tokens=1 << 30, grace_s=0.5) as edge,
        a_scripted_node(tmp_path, "word " * 1000),
    ):
        await edge.log.says("connected to node")
        body = a_body(stream=True)
        head = (
            f"POST {RUN} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
            f"authorization: Bearer {edge.state.token}\r\n\r\n"
        )
        port = httpx.URL(edge.url).port
        assert port is not None
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(head.encode() + body)
            await until_stalled(connection)

            assert await edge.end() == 0


@pytest.mark.asyncio
async def test_the_edge_is_one_process_without_torch(tmp_path: Path) -> None:
    async with an_edge_process(tmp_path) as edge:
        children = children_of(edge.process.pid)
        mapped = mapped_files(edge.process.pid)

    assert children == []
    assert "granian" in mapped
    assert "torch" not in mapped


def test_a_port_that_is_taken_ends_the_process_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "edge.json"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        config = {"port": port, "nodes": ["unix:/nowhere"], "state_dir": "state"}
        file.write_text(json.dumps(config))
        ended = subprocess.run(
            [sys.executable, "-m", "tenantry_runtime.edge", str(file)],
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert os.listdir(tmp_path) == ["edge.json"]


def test_a_bad_configuration_ends_the_process_with_its_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "edge.json"
    file.write_text("{}")

    assert main([str(file)]) == 1
    assert "edge.json: Object missing required field" in caplog.text


def test_a_call_without_a_file_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage:" in capsys.readouterr().err
