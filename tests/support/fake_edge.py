"""An edge to be killed: `python -m support.fake_edge ADDRESS` generates without end.

It says when it has its first tokens.
"""

from __future__ import annotations

import sys

import anyio

from support.fake_node import ENDLESS, a_submit
from tenantry_runtime.pool.client import connect


async def generate(address: str) -> None:
    async with connect(address) as client:
        await client.ready()
        async with client.generate(a_submit(max_tokens=ENDLESS)) as sequence:
            async for tokens in sequence:
                if tokens.cached_tokens:
                    print("begun", flush=True)


if __name__ == "__main__":
    anyio.run(generate, sys.argv[1])
