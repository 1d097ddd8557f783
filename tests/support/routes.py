"""Routers, members and requests for tests of routing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tenantry_runtime.core import Phase
from tenantry_runtime.pool.messages import MemberDescription, MemberLoad
from tenantry_runtime.routing.placement import Asked
from tenantry_runtime.routing.router import Router

MODEL = "@cf/test/model"
BOTH: tuple[Phase, ...] = ("prefill", "decode")


def a_member(phase: Phase, **fields: Any) -> MemberDescription:
    return MemberDescription(
        **{
            "model": MODEL,
            "phase": phase,
            "weights_format": "bf16",
            "cache_format": "bf16",
            "page_tokens": 64,
            "num_pages": 1000,
            "context_tokens": 1 << 20,
            "revision": "0",
            **fields,
        }
    )


def a_load(phase: Phase, free_pages: int, **fields: Any) -> MemberLoad:
    return MemberLoad(
        **{
            "model": MODEL,
            "phase": phase,
            "num_free_pages": free_pages,
            "num_reserved_growth_pages": 0,
            "num_queued_tokens": 0,
            "num_sequences": 0,
            **fields,
        }
    )


def a_router(
    prefill: Iterable[str] = (),
    decode: Iterable[str] = (),
    whole: Iterable[str] = (),
    **fields: Any,
) -> Router:
    router = Router(**{"differences": lambda ours, theirs: (), **fields})
    phases: list[tuple[Iterable[str], Sequence[Phase]]] = [
        (prefill, ("prefill",)),
        (decode, ("decode",)),
        (whole, BOTH),
    ]
    for nodes, hosted in phases:
        for node in nodes:
            router.join(node, [a_member(phase) for phase in hosted])
    return router


def asked(**fields: Any) -> Asked:
    return Asked(**{"tenant": "tenant", "model": MODEL, "num_tokens": 100, **fields})
