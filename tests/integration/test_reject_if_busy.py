"""A pool that is full, asked by who would rather not wait: a real node, whose scheduler decides."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from support.cluster import GLM, Layout, a_cluster
from support.edges import ACCOUNT
from support.endless_model import NAME, a_catalog_of_an_endless_model

pytestmark = pytest.mark.cluster

RUN = f"/client/v4/accounts/{ACCOUNT}/ai/run/{GLM}"
ENDLESS = {"prompt": "Go on.", "temperature": 0, "max_tokens": 800}


@pytest.mark.asyncio
async def test_a_full_pool_refuses_who_will_not_wait_at_once_and_nobody_else(
    tmp_path: Path,
) -> None:
    a_catalog_of_an_endless_model(tmp_path)
    layout = Layout(
        phases={"node": ("prefill", "decode")},
        model=GLM,
        source={"directory": str(tmp_path / NAME)},
        engine={"max_batch": 1, "num_pages": 1024},
    )
    place = tmp_path / "cluster"
    place.mkdir()
    async with a_cluster(place, layout) as cluster, cluster.edge.client() as client:
        not_waiting = {"prompt": "Hi.", "max_tokens": 4, "options": {"rejectIfBusy": True}}
        idle = await client.post(RUN, json=not_waiting)

        waited: list[int] = []

        async def wait() -> None:
            waited.append(
                (await client.post(RUN, json={"prompt": "Hi.", "max_tokens": 4})).status_code
            )

        async with (
            anyio.create_task_group() as tasks,
            client.stream("POST", RUN, json=ENDLESS | {"stream": True}) as busy,
        ):
            events = busy.aiter_lines()
            await anext(events)
            tasks.start_soon(wait)
            refused = await client.post(RUN, json=not_waiting)
            *_, last = [event async for event in events if event]
        await cluster.until_idle()
        again = await client.post(RUN, json=not_waiting)

    assert (idle.status_code, again.status_code) == (200, 200)
    assert (waited, last) == ([200], "data: [DONE]")
    assert refused.status_code == 429
    assert [error["code"] for error in refused.json()["errors"]] == [3040]
    assert int(refused.headers["retry-after"]) >= 1
