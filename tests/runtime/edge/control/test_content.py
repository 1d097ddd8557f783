"""The files of a worker, downloaded."""

from __future__ import annotations

import anyio
import pytest
from starlette.types import Message

from support.control_plane import ACME, HELLO, ControlPlane

SCRIPTS = "/client/v4/accounts/acme/workers/scripts"
PATH = f"{SCRIPTS}/hello"
BIG = b"x" * (4 << 20)
NUM_CLIENTS = 12


@pytest.mark.asyncio
async def test_as_few_downloads_are_in_memory_at_a_time_as_uploads(plane: ControlPlane) -> None:
    modules = {
        "entry.py": (HELLO, "text/x-python"),
        "big.bin": (BIG, "application/octet-stream"),
    }
    assert (await plane.upload(modules=modules)).status == 200
    bodies: list[int] = []
    has_begun, may_go_on = anyio.Event(), anyio.Event()

    async def download() -> None:
        async def receive() -> Message:
            await anyio.sleep_forever()
            raise AssertionError("nothing is said")

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                bodies.append(len(message["body"]))
                has_begun.set()
                # a client that takes nothing
                await may_go_on.wait()

        headers = [(b"authorization", f"Bearer {plane.tokens[ACME]}".encode())]
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": PATH,
            "raw_path": PATH.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("edge", 80),
            "app": plane.app,
        }
        await plane.app(scope, receive, send)

    async with anyio.create_task_group() as tasks:
        for _ in range(NUM_CLIENTS):
            tasks.start_soon(download)
        await has_begun.wait()
        # whoever could have come has come when later requests are answered
        for _ in range(NUM_CLIENTS):
            assert (await plane.ask("GET", SCRIPTS)).status == 200
        num_at_once = len(bodies)
        may_go_on.set()
    assert num_at_once <= 2, "of one account, as of uploads and of long values"
    assert sum(bodies) > NUM_CLIENTS * len(BIG), "all have come to their end"
