"""A tenant's turn at one node depends on what it was given by another: two nodes, and the edge's own
code between them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from support.cluster import KIMI, Layout, a_cluster_node
from support.fake_node import PATIENCE_S
from tenantry_runtime.core import Sampling
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.engine.policy import ServiceCost
from tenantry_runtime.pool.client import NodeClient, connect
from tenantry_runtime.pool.messages import Submit

pytestmark = pytest.mark.cluster

NUM_PROMPT, NUM_LONG = 100, 600
NUM_OUTPUT = 8
NUM_FLOOD = 4
NUM_POLITE = 30


def cost(num_prompt: int) -> float:
    return num_prompt * ServiceCost().input_token + NUM_OUTPUT * ServiceCost().output_token


USED = NUM_FLOOD * cost(NUM_LONG)
"""By a flooder, at the first node."""


class Asker:
    """Sends requests whose prompts have nothing in common, and notes whose end when."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        """Tenants of the requests, in the order in which they ended."""
        self._rng = random.Random(1)
        self._serial = 0

    def submit(self, tenant: str, num_prompt: int) -> Submit:
        self._serial += 1
        return Submit(
            request_id=str(self._serial),
            tenant=tenant,
            model=KIMI,
            token_ids=[self._rng.randrange(10, 500) for _ in range(num_prompt)],
            sampling=Sampling(seed=1, temperature=0.0),
            stop_token_ids=(),
            max_tokens=NUM_OUTPUT,
        )

    async def run(self, client: NodeClient, submit: Submit) -> None:
        async with client.generate(submit) as sequence:
            async for _ in sequence:
                pass
        self.ended.append(submit.tenant)


async def until_reported(client: NodeClient, tenant: str, amount: float) -> None:
    """Ask a node for its statistics until they have what it gave a tenant."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            accounts = [
                account
                for report in (await client.statistics()).services
                for account in report.accounts
            ]
            if sum(each.amount for each in accounts if each.tenant == tenant) >= amount:
                return


@asynccontextmanager
async def two_nodes(folder: Path) -> AsyncIterator[tuple[NodeClient, NodeClient]]:
    """Yield the nodes `there` and `here`; the second serves one request at a time."""
    nodes = Nodes()
    async with AsyncExitStack() as stack:
        clients = []
        for name, max_batch in (("there", 8), ("here", 1)):
            layout = Layout(phases={}, engine={"max_batch": max_batch, "num_pages": 256})
            _, address = await stack.enter_async_context(
                a_cluster_node(folder, name, ("prefill", "decode"), layout)
            )
            client = await stack.enter_async_context(connect(address, observer=nodes))
            nodes.add(client)
            with anyio.fail_after(2 * PATIENCE_S):
                await client.ready()
            clients.append(client)
        yield clients[0], clients[1]


@pytest.mark.asyncio
async def test_who_floods_one_node_comes_second_at_another_by_what_it_used(tmp_path: Path) -> None:
    asker = Asker()
    async with two_nodes(tmp_path) as (there, here), anyio.create_task_group() as tasks:

        def ask_here(tenant: str, count: int) -> None:
            for _ in range(count):
                tasks.start_soon(asker.run, here, asker.submit(tenant, NUM_PROMPT))

        # while the second node serves somebody else, a polite tenant waits for its turn there
        plug = replace(asker.submit("plug", NUM_PROMPT), max_tokens=3900)
        async with here.generate(plug) as plugging:
            await anext(plugging)
            ask_here("polite", NUM_POLITE)
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as flood:
                for _ in range(NUM_FLOOD):
                    flood.start_soon(asker.run, there, asker.submit("flooder", NUM_LONG))
            await until_reported(there, "flooder", USED)
            asker.ended.clear()
            # behind the report, on the same stream
            ask_here("flooder", 3)
            await anyio.wait_all_tasks_blocked()

    assert Counter(asker.ended) == {"polite": NUM_POLITE, "flooder": 3}
    # pages count too, for as long as they are held
    assert asker.ended.index("flooder") * cost(NUM_PROMPT) == pytest.approx(USED, rel=0.15)
