"""Members in processes of their own give what members in one process give, token for token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from support.cluster import GLM, KIMI, Layout, a_cluster
from support.conversations import Ask, Told, ask_all, make_tenants, prompts

pytestmark = pytest.mark.cluster

NUM_STREAMS = 64
NUM_TENANTS = 8

SOURCE = {"prefill_cache": "bf16", "cache": "fp8"}
ENGINE = {"chunk_tokens": 128, "num_pages": 1024}

Phases: TypeAlias = Mapping[str, Sequence[str]]

ONE_PROCESS: Phases = {"all": ("prefill", "decode")}
SPLITS: Mapping[str, Phases] = {
    "two prefill, one decode": {"p0": ("prefill",), "p1": ("prefill",), "d0": ("decode",)},
    "one prefill, two decode": {"p0": ("prefill",), "d0": ("decode",), "d1": ("decode",)},
}


def folder(parent: Path, name: str) -> Path:
    made = parent / name
    made.mkdir()
    return made


async def told_by(
    place: Path, phases: Phases, model: str, num_streams: int = NUM_STREAMS
) -> list[Told]:
    layout = Layout(phases=phases, model=model, source=SOURCE, engine=ENGINE)
    async with a_cluster(place, layout) as cluster:
        tenants = await make_tenants(cluster.edge, NUM_TENANTS)
        asks = [
            Ask(
                tenant=tenants[number % NUM_TENANTS],
                prompt=prompt,
                model=model,
                seed=number,
                temperature=0.0 if number % 2 else 0.8,
                session=f"s{number % 5}" if number % 3 else None,
            )
            for number, prompt in enumerate(prompts(1, num_streams))
        ]
        told = await ask_all(cluster.edge, asks)
        await cluster.until_idle()
    return told


@pytest.mark.asyncio
@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS.keys())
async def test_sixty_four_streams_of_eight_tenants_are_told_the_same(
    tmp_path: Path, split: Phases
) -> None:
    together = await told_by(folder(tmp_path, "together"), ONE_PROCESS, KIMI)
    apart = await told_by(folder(tmp_path, "apart"), split, KIMI)
    assert [each.error for each in apart] == [None] * NUM_STREAMS
    assert all(each.is_whole for each in apart)
    assert [each.text for each in apart] == [each.text for each in together]
    for one, other in zip(apart, together, strict=True):
        for count in ("prompt_tokens", "completion_tokens"):
            assert one.usage[count] == other.usage[count]
        assert one.usage["prompt_tokens_details"]["cached_tokens"] % 64 == 0


@pytest.mark.asyncio
async def test_a_sparse_model_with_index_keys_is_handed_over_whole(tmp_path: Path) -> None:
    split = SPLITS["two prefill, one decode"]
    together = await told_by(folder(tmp_path, "together"), ONE_PROCESS, GLM, num_streams=12)
    apart = await told_by(folder(tmp_path, "apart"), split, GLM, num_streams=12)
    assert [each.text for each in apart] == [each.text for each in together]
    assert all(each.is_whole for each in apart)
