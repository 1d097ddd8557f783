"""Ways to call the OpenAI dialects of an edge."""

from __future__ import annotations

import json
from typing import Any

import httpx

from support.edges import ACCOUNT, Edge

ROOT = "/v1"
UNDER_ACCOUNT = f"/client/v4/accounts/{ACCOUNT}/ai/v1"
BASES = (ROOT, UNDER_ACCOUNT)

MODEL = "kimi-k2.6"

MINIMAL: dict[str, dict[str, Any]] = {
    "chat/completions": {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
    "completions": {"model": MODEL, "prompt": "hi"},
    "responses": {"model": MODEL, "input": "hi"},
}
"""The least that each route takes."""


async def call(
    edge: Edge,
    route: str,
    *,
    base: str = ROOT,
    headers: dict[str, str] | None = None,
    **fields: Any,
) -> httpx.Response:
    """Post the least that the route takes, and the fields."""
    body = {**MINIMAL[route], **fields}
    async with edge.client() as client:
        return await client.post(f"{base}/{route}", json=body, headers=headers)


def events(response: httpx.Response) -> list[Any]:
    """Read a stream's records; `[DONE]` stays text, and an event's type must be its record's."""
    read: list[Any] = []
    for block in filter(None, response.text.split("\n\n")):
        if block.startswith(":"):
            continue
        *kind, data = block.split("\n")
        text = data.removeprefix("data: ")
        # Any: a record, or the end
        record: Any = text if text == "[DONE]" else json.loads(text)
        if kind:
            assert kind == [f"event: {record['type']}"]
        read.append(record)
    return read
