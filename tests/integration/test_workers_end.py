"""Ctrl-C while workers run: what is nearly done is finished, the rest is told, and nothing stays behind."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import anyio
import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from support.dev_workers import DevWorkers, dev_workers
from support.processes import descendants_of, wait_until_gone

pytestmark = pytest.mark.isolates

SLEEPS = """
import asyncio
from urllib.parse import urlsplit

asleep = 0

class Default(WorkerEntrypoint):
    async def fetch(self, request):
        global asleep
        query = urlsplit(request.url).query
        if not query:
            return Response(str(asleep))
        print("begun")
        asleep += 1
        await asyncio.sleep(float(query))
        self.ctx.wait_until(self.afterwards())
        return Response("done")

    async def afterwards(self):
        await asyncio.sleep(0.05)
        print("and what was left to do")
"""


class Caller(threading.Thread):
    """A client that waits for a worker that sleeps."""

    def __init__(self, workers: DevWorkers, seconds: float) -> None:
        super().__init__()
        self.response: httpx.Response | None = None
        self._workers = workers
        self._seconds = seconds

    def run(self) -> None:
        self.response = self._workers.get("sleeps", f"/?{self._seconds}")


def test_what_runs_may_finish_and_what_takes_too_long_is_told(tmp_path: Path) -> None:
    with dev_workers(tmp_path) as workers:
        workers.deploy("sleeps", SLEEPS)
        opened = workers.ask("POST", "workers/scripts/sleeps/tails")
        assert workers.get("sleeps").text == "0"
        short, long = Caller(workers, 0.4), Caller(workers, 60)
        with connect(opened["url"], proxy=None) as listener:
            short.start()
            long.start()
            while workers.get("sleeps").text != "2":
                pass
            pids = descendants_of(workers.server.process.pid)
            workers.server.interrupt()
            with pytest.raises(ConnectionClosed):
                while True:
                    listener.recv(timeout=30)
        short.join(30)
        long.join(30)
        assert workers.server.wait_for_end() == 0

    assert short.response is not None
    assert (short.response.status_code, short.response.text) == (200, "done")
    assert long.response is not None
    assert long.response.status_code == 503
    for pid in pids:
        anyio.run(wait_until_gone, pid)
    kept = (workers.server.state_dir / "worker-logs" / "dev" / "sleeps.jsonl").read_text()
    records = [json.loads(line) for line in kept.splitlines()]
    texts = [[line["message"][0] for line in record["logs"]] for record in records]
    assert ["begun", "and what was left to do"] in texts
