"""Bodies of requests, and how a test reads one."""

from __future__ import annotations

import json
from typing import Any

from support.plain_text import KIMI
from tenantry_runtime.catalog import CatalogEntry
from tenantry_runtime.core import GenerateRequest
from tenantry_runtime.edge.dialects.dialect import Target
from tenantry_runtime.edge.dialects.workers_ai import WorkersAI
from tenantry_runtime.text import SamplingDefaults

SEED = 424242

USER = {"role": "user", "content": "hi"}


def a_body(**fields: Any) -> bytes:
    """Print a request: one user message, and the fields."""
    if "prompt" not in fields:
        fields = {"messages": [USER], **fields}
    return json.dumps(fields).encode()


def a_call(call_id: str = "call_0", name: str = "f", arguments: Any = "{}") -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def a_target(entry: CatalogEntry = KIMI) -> Target:
    """What a body is parsed against: a model whose tokens are characters."""
    return Target(
        entry=entry,
        defaults=SamplingDefaults(temperature=0.6, top_p=0.95),
        vocab_size=1000,
        token_bytes=lambda token_id: chr(token_id).encode(),
    )


def parsed_body(
    body: bytes, *, entry: CatalogEntry = KIMI, session: str | None = None
) -> GenerateRequest:
    return WorkersAI(draw_seed=lambda: SEED).parse(body, a_target(entry), session=session)


def parsed(**fields: Any) -> GenerateRequest:
    return parsed_body(a_body(**fields))
