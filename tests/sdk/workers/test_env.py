"""`env`: what it has, and that no request changes it for another."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import tenantry.workers
from support.worker_code import a_worker
from tenantry.workers.testing import FakeKV

SHOWS = """
    from workers import Response, WorkerEntrypoint, env, patch_env

    NAME = env.NAME

    class Default(WorkerEntrypoint):
        async def fetch(self, request):
            with patch_env(NAME="patched", MORE=1):
                inside = [env.NAME, self.env.NAME, env.MORE]
            return Response.json([NAME, env.NAME, self.env.NAME, inside])
"""


@pytest.mark.asyncio
async def test_env_is_there_at_import_and_in_requests(tmp_path: Path) -> None:
    async with a_worker(tmp_path, SHOWS, env={"NAME": "Ada"}) as worker:
        shown = await (await worker.fetch("/")).json()
    assert shown == ["Ada", "Ada", "Ada", ["patched", "patched", 1]]


@pytest.mark.asyncio
async def test_env_has_json_whose_keys_are_attributes(tmp_path: Path) -> None:
    code = """
        from workers import Response, env

        def on_fetch():
            return Response(f"{env.LIMITS.daily} {env.LIMITS['names'][0].first}")
    """
    limits = {"daily": 3, "names": [{"first": "Ada"}]}
    async with a_worker(tmp_path, code, env={"LIMITS": limits}) as worker:
        assert await (await worker.fetch("/")).text() == "3 Ada"


@pytest.mark.asyncio
async def test_json_that_a_request_changes_is_its_own(tmp_path: Path) -> None:
    code = """
        from workers import Response, env

        def on_fetch():
            env.LIMITS.daily = 9
            limits = env.LIMITS
            limits["names"].append("Eve")
            return Response.json([limits, env.LIMITS])
    """
    limits = {"daily": 3, "names": ["Ada"]}
    async with a_worker(tmp_path, code, env={"LIMITS": limits}) as worker:
        for _ in range(2):
            assert await (await worker.fetch("/")).json() == [
                {"daily": 3, "names": ["Ada", "Eve"]},
                limits,
            ]


@pytest.mark.asyncio
async def test_a_name_that_is_not_bound_says_what_is(tmp_path: Path) -> None:
    code = """
        from workers import Response, env

        def on_fetch():
            assert getattr(env, "KEY", "none") == "none"
            assert not hasattr(env, "KEY")
            return Response(env.KEY)
    """
    async with a_worker(tmp_path, code, env={"NAME": "Ada", "KV": FakeKV()}) as worker:
        with pytest.raises(AttributeError, match=r"env has no 'KEY' \(KV, NAME\); wrangler.jsonc"):
            await worker.fetch("/")


@pytest.mark.asyncio
@pytest.mark.parametrize("statement", ["env.NAME = 'Eve'", "del env.NAME", "self.env.NEW = 1"])
async def test_env_cannot_be_changed_for_other_requests(tmp_path: Path, statement: str) -> None:
    code = f"""
        from workers import WorkerEntrypoint, env

        class Default(WorkerEntrypoint):
            def fetch(self):
                {statement}
    """
    async with a_worker(tmp_path, code, env={"NAME": "Ada"}) as worker:
        with pytest.raises(AttributeError, match="all requests share it"):
            await worker.fetch("/")


@pytest.mark.asyncio
async def test_a_patch_is_seen_by_its_own_task_only(tmp_path: Path) -> None:
    code = """
        import asyncio
        from workers import Response, env, patch_env

        both = asyncio.Barrier(2)

        async def on_fetch(request):
            with patch_env(NAME=request.url[-1]):
                await both.wait()
                return Response(env.NAME)
    """
    async with a_worker(tmp_path, code, env={"NAME": "Ada"}) as worker:
        first, second = await asyncio.gather(worker.fetch("/a"), worker.fetch("/b"))
        assert (await first.text(), await second.text()) == ("a", "b")


def test_outside_of_a_worker_env_says_what_is_missing() -> None:
    with pytest.raises(RuntimeError, match="this is no worker"):
        tenantry.workers.env.NAME  # noqa: B018
