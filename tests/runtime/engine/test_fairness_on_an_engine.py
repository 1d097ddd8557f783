"""The same flood on a real model: its steps, its pages, its cache."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from support.engine import Transcript, a_submit
from tenantry_runtime.core import Share
from tenantry_runtime.engine.build import build_loop
from tenantry_runtime.engine.config import ModelSource, NodeConfig
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.pool.messages import Submit

CHECKPOINTS = Path(str(files("tenantry_runtime"))) / "checkpoints"
MODEL = "kimi-k2.6-nano"
CHUNK_TOKENS = 64


def an_engine_of_a_real_model(num_pages: int, max_batch: int) -> EngineLoop:
    config = NodeConfig(
        models=(ModelSource(id=MODEL, directory=str(CHECKPOINTS / MODEL)),),
        num_pages=num_pages,
        max_batch=max_batch,
        chunk_tokens=CHUNK_TOKENS,
        deterministic=True,
    )
    return build_loop(config)


def a_request(
    name: str, num_prompt: int, max_tokens: int = 16, share: Share | None = None
) -> Submit:
    number = sum(map(ord, name))
    return a_submit(
        name,
        model=MODEL,
        tenant=name.partition("-")[0],
        prompt=[(number + 3 * k + k * k) % 300 for k in range(num_prompt)],
        max_tokens=max_tokens,
        stop_token_ids=(),
        share=share,
    )


@pytest.mark.parametrize(
    ("num_pages", "max_batch", "num_preemptions"),
    [(64, 32, 0), (8, 4, 1)],
    ids=["room for all", "all taken"],
)
def test_a_polite_request_has_its_first_token_two_steps_after_it_came(
    num_pages: int, max_batch: int, num_preemptions: int
) -> None:
    """Its prompt is one chunk: the step that first computes it says its first token.

    The flood sends 20 requests of two pages; four of them fill the smaller pool.
    """
    loop = an_engine_of_a_real_model(num_pages, max_batch)
    scheduler = loop.lanes[0].scheduler
    transcript = Transcript()
    for n in range(20):
        loop.submit(a_request(f"flood-{n}", 100))
    for number in range(2):
        for _ in range(12 + number):
            transcript.read(loop.turn())
        before = scheduler.statistics().num_preemptions
        polite = a_request(f"polite-{number}", 60, 4, Share(guaranteed=0.25))
        loop.submit(polite)
        num_steps = 0
        while not transcript.tokens[polite.request_id]:
            transcript.read(loop.turn())
            num_steps += 1
            assert num_steps <= 2
        assert scheduler.statistics().num_preemptions - before == num_preemptions
        while polite.request_id not in transcript.finished:
            transcript.read(loop.turn())
    assert scheduler.statistics().num_waiting > 0, "the flood has ebbed before"
    assert not transcript.failed
    loop.close()
