"""Running a worker in a test's own process, with fakes for what it is bound to.

    @pytest.mark.asyncio
    async def test_it_greets() -> None:
        ai = FakeAI("Hello.")
        async with open_worker("src/entry.py", env={"AI": ai, "NAME": "Ada"}) as worker:
            response = await worker.fetch("/")
            assert await response.text() == "Hello."
        assert ai.calls[0].inputs["messages"][0]["content"] == "Greet Ada."

What crosses the border of an isolate crosses one here: arguments and results are MessagePack, bodies
are pieces of bytes, and a handler runs in a task of its own. Limits of time and memory are the real
runtime's, and not tried here. With this distribution pytest has a plugin that makes `workers`
importable where nothing else does.
"""

from __future__ import annotations

from ._ai import AiCall, FakeAI, completion, tool_call
from ._bound import FakeFetch, FakeService
from ._host import LogLine
from ._kv import FakeKV
from ._running import RunningWorker, open_worker

__all__ = [
    "AiCall",
    "FakeAI",
    "FakeFetch",
    "FakeKV",
    "FakeService",
    "LogLine",
    "RunningWorker",
    "completion",
    "open_worker",
    "tool_call",
]
