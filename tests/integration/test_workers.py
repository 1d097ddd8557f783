"""Workers from the upload to the answer, in a real `workerctl dev` with isolates as the machine has them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from support.dev_workers import DevWorkers, dev_workers
from support.endless_model import NAME
from support.fake_node import until_running
from tenantry_runtime.pool.client import connect as connect_to_node

pytestmark = pytest.mark.isolates

AI = {"type": "ai", "name": "AI"}

PATIENCE_S = 5.0
"""For a machine that does much else."""

PROMPT = {"prompt": "Go on.", "temperature": 0, "max_tokens": 40}

SAYS = """
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        return Response(f"{request.method} {request.url} {self.env.WORD}")
"""


def says(word: str) -> list[dict[str, str]]:
    return [{"type": "plain_text", "name": "WORD", "text": word}]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevWorkers]:
    with dev_workers(tmp_path_factory.mktemp("dev")) as workers:
        yield workers


def test_a_worker_has_a_url_of_each_kind(workers: DevWorkers) -> None:
    workers.deploy("urls", SAYS, says("hi"))
    workers.ask("PUT", "workers/scripts/urls/routes", [{"pattern": "shop.x.dev.localhost/cart*"}])
    port = workers.server.port
    by_host = workers.get("urls", "/a?b=c")
    by_path = httpx.get(f"{workers.url}/workers/dev/urls/a?b=c")
    by_route = httpx.get(f"{workers.url}/cart/1", headers={"host": f"shop.x.dev.localhost:{port}"})
    assert by_host.text == f"GET http://urls.dev.localhost:{port}/a?b=c hi"
    assert by_path.text == f"GET http://127.0.0.1:{port}/a?b=c hi"
    assert by_route.text == f"GET http://shop.x.dev.localhost:{port}/cart/1 hi"
    assert by_host.headers["cf-ray"] != by_path.headers["cf-ray"]


def test_a_deploy_is_live_within_a_second_and_a_rollback_too(workers: DevWorkers) -> None:
    workers.deploy("live", SAYS, says("first"))
    assert workers.get("live").text.endswith("first")
    first = workers.ask("GET", "workers/scripts/live/deployments")["deployments"][0]["versions"]
    workers.deploy("live", SAYS, says("second"))
    until_it_says(workers, "live", "second")
    workers.ask(
        "POST",
        "workers/scripts/live/deployments",
        {"strategy": "percentage", "versions": first},
    )
    until_it_says(workers, "live", "first")


def until_it_says(workers: DevWorkers, name: str, word: str) -> None:
    """Ask until the answer is the new one, which takes the second that is promised at most."""
    deadline_s = time.monotonic() + 1 + PATIENCE_S
    with workers.client(name) as client:
        while not (response := client.get("/")).text.endswith(word):
            assert response.status_code == 200
            assert time.monotonic() < deadline_s


def test_an_answer_that_a_worker_hands_on_is_the_models_own(workers: DevWorkers) -> None:
    workers.deploy(
        "streams",
        f"""
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        inputs = {{**{PROMPT!r}, "stream": True}}
        stream = await self.env.AI.run("{NAME}", inputs)
        return Response(stream, headers={{"content-type": "text/event-stream"}})
""",
        [AI],
    )
    direct = workers.control.post(f"ai/run/{NAME}", json=PROMPT).json()["result"]
    message = direct["choices"][0]["message"]
    with workers.client("streams") as client, client.stream("GET", "/") as response:
        assert response.headers["content-type"] == "text/event-stream"
        *events, done = [line[6:] for line in response.iter_lines() if line.startswith("data: ")]
    assert done == "[DONE]"
    chunks = [json.loads(event) for event in events]
    for field in ("content", "reasoning_content"):
        deltas = [choice["delta"].get(field) for chunk in chunks for choice in chunk["choices"]]
        assert "".join(delta or "" for delta in deltas) == (message.get(field) or "")
    assert len(chunks) > 10


@pytest.mark.asyncio
async def test_a_client_that_hangs_up_stops_the_worker_and_the_model(workers: DevWorkers) -> None:
    workers.deploy(
        "endless",
        f"""
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        inputs = {{"prompt": "Go on.", "max_tokens": 3900, "stream": True}}
        return Response(await self.env.AI.run("{NAME}", inputs))
""",
        [AI],
    )
    address = f"unix:{workers.server.state_dir / 'run' / 'node.sock'}"
    async with (
        connect_to_node(address) as node,
        httpx.AsyncClient(base_url=workers.url, headers=workers.host("endless")) as client,
    ):
        await node.ready()
        async with client.stream("GET", "/") as response:
            assert response.status_code == 200
            pieces = aiter(response.aiter_bytes())
            await anext(pieces)
            await until_running(node, 1)
        await until_running(node, 0)
    assert [record["outcome"] for record in workers.records("endless")] == ["canceled"]


def test_bodies_go_both_ways_in_pieces(workers: DevWorkers) -> None:
    workers.deploy(
        "echo",
        """
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        async def twice():
            async for piece in request.body:
                yield piece
                yield piece
        return Response(twice())
""",
    )
    sent = b"x" * 300_000
    with workers.client("echo") as client:
        response = client.post("/", content=iter([sent[:100_000], sent[100_000:]]))
    assert len(response.content) == 2 * len(sent)


def test_a_tail_tells_of_requests_exceptions_and_triggers(workers: DevWorkers) -> None:
    workers.deploy(
        "talks",
        """
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        print("hello from", request.url)
        raise ValueError("no luck")

    async def scheduled(self, controller, env, ctx):
        print("it is time for", controller.cron)
""",
    )
    opened = workers.ask("POST", "workers/scripts/talks/tails", {"filters": []})
    with connect(opened["url"], subprotocols=[Subprotocol("trace-v1")], proxy=None) as listener:
        listener.send('{"debug":false}')
        answer = workers.get("talks", "/x", headers={"authorization": "Bearer SECRET"})
        raised = json.loads(listener.recv(timeout=30))
        assert workers.get("talks", "/__scheduled?cron=0+3+*+*+SUN").status_code == 200
        ran = json.loads(listener.recv(timeout=30))

    assert answer.status_code == 500
    assert "no luck" not in answer.text
    assert answer.json()["worker"] == "talks"
    assert raised["outcome"] == "exception"
    assert raised["requestId"] == answer.headers["cf-ray"]
    assert raised["logs"][0]["message"][0].startswith("hello from http://talks.dev.localhost")
    (error,) = raised["exceptions"]
    assert (error["name"], error["message"]) == ("ValueError", "no luck")
    assert 'File "entry.py", line 7' in error["stack"]
    assert "SECRET" not in json.dumps(raised)
    assert ran["event"]["cron"] == "0 3 * * SUN"
    assert ran["logs"][0]["message"] == ["it is time for 0 3 * * SUN"]
    assert [record["outcome"] for record in workers.records("talks")] == ["exception", "ok"]


def test_a_worker_calls_another_and_keeps_values(workers: DevWorkers) -> None:
    workers.deploy(
        "adds",
        """
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        return Response("by request")

    async def add(self, a, b):
        return a + b
""",
    )
    namespace = workers.ask("POST", "storage/kv/namespaces", {"title": "counts"})["id"]
    workers.deploy(
        "calls",
        """
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        response = await self.env.ADDS.fetch("http://adds/")
        await self.env.KV.put("sum", str(await self.env.ADDS.add(40, 2)))
        return Response(f"{await response.text()}: {await self.env.KV.get('sum')}")
""",
        [
            {"type": "service", "name": "ADDS", "service": "adds"},
            {"type": "kv_namespace", "name": "KV", "namespace_id": namespace},
        ],
    )
    assert workers.get("calls").text == "by request: 42"
    kept = workers.control.get(f"storage/kv/namespaces/{namespace}/values/sum")
    assert kept.text == "42"


def test_a_worker_reaches_nothing_of_this_machine(workers: DevWorkers) -> None:
    workers.deploy(
        "prowls",
        """
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        try:
            await fetch(request.headers["x-target"])
        except Exception as error:
            return Response(f"denied: {error}")
        return Response("reached")
""",
    )
    with socket.create_server(("127.0.0.1", 0)) as secret:
        secret.setblocking(False)
        port = secret.getsockname()[1]
        for target in (f"http://127.0.0.1:{port}/", f"http://localhost:{port}/", workers.url):
            told = workers.get("prowls", headers={"x-target": target}).text
            assert told.startswith("denied: ")
        with pytest.raises(BlockingIOError):
            secret.accept()


def test_a_worker_that_spins_is_ended_and_served_again(workers: DevWorkers) -> None:
    workers.deploy(
        "spins",
        """
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        while request.url.endswith("/spin"):
            pass
        return Response("alive")
""",
        limits={"cpu_ms": 100},
    )
    page = workers.get("spins", "/spin", headers={"accept": "text/html"})
    assert page.status_code == 503
    assert "Worker spins used more CPU time than it may" in page.text
    assert workers.get("spins").text == "alive"
    assert [record["outcome"] for record in workers.records("spins")] == ["exceededCpu", "ok"]


def test_an_unknown_worker_is_told_apart_from_one_that_fails(workers: DevWorkers) -> None:
    told = workers.get("absent")
    assert told.status_code == 404
    assert "There is no worker absent in account dev" in told.text
