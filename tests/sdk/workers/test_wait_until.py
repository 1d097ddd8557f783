"""What goes on after a response: held until it ends, and harmless to all else."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from support.worker_code import a_worker
from tenantry.workers.testing import FakeKV

CODE = """
    import asyncio
    from workers import Response, WorkerEntrypoint, wait_until, waitUntil

    class Default(WorkerEntrypoint):
        async def fetch(self):
            self.ctx.waitUntil(self.put("a"))
            self.ctx.wait_until(self.fail())
            wait_until(self.put("b"))
            waitUntil(self.nested())
            return Response("done")

        async def put(self, name):
            await asyncio.sleep(0)
            await self.env.KV.put(name, name)

        async def fail(self):
            raise LookupError("not there")

        async def nested(self):
            self.ctx.wait_until(self.put("c"))
"""


@pytest.mark.asyncio
async def test_all_of_it_is_done_whatever_one_of_them_raises(tmp_path: Path) -> None:
    kv = FakeKV()
    async with a_worker(tmp_path, CODE, env={"KV": kv}) as worker:
        assert await (await worker.fetch("/")).text() == "done"
        gc.collect()
        await worker.settle()
        assert kv.values == {"a": "a", "b": "b", "c": "c"}
        text = "\n".join(line.text for line in worker.logs)
        assert {line.level for line in worker.logs} == {"error"}
        assert text.startswith("what wait_until was given failed\n")
        assert 'raise LookupError("not there")' in text
        assert text.endswith("LookupError: not there")


@pytest.mark.asyncio
async def test_what_was_given_can_be_awaited_too(tmp_path: Path) -> None:
    code = """
        from workers import Response, WorkerEntrypoint

        class Default(WorkerEntrypoint):
            async def fetch(self):
                return Response(await self.ctx.wait_until(self.text()))

            async def text(self):
                return "text"
    """
    async with a_worker(tmp_path, code) as worker:
        assert await (await worker.fetch("/")).text() == "text"
