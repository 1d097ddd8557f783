"""Decode steps as CUDA graphs: the same bits as launched op by op, no memory, no waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from support.step_bench import Bench, some_tokens
from support.tiny_decoder import VOCABULARY
from support.token_sets import a_guide
from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.core import Sampling
from tenantry_runtime.engine.device_runner import DeviceRunner
from tenantry_runtime.engine.plan import StepResult
from tenantry_runtime.models.config import Family

pytestmark = pytest.mark.gpu

EVERY_MODEL = pytest.mark.parametrize(
    ("family", "cache"), [("kimi", "bf16"), ("kimi", "fp8"), ("glm", "bf16"), ("glm", "fp8")]
)
DRAWN = Sampling(seed=5, temperature=0.8, top_p=0.9)
ADJUSTED = Sampling(
    seed=5,
    temperature=0.8,
    repetition_penalty=1.2,
    frequency_penalty=0.3,
    logit_bias=((3, 1.0),),
    top_logprobs=20,
)
EVERY_SAMPLING = pytest.mark.parametrize("sampling", [DRAWN, ADJUSTED], ids=["drawn", "adjusted"])


@contextmanager
def nobody_waits() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def a_bench(
    family: Family, cache: CacheName, *, has_graphs: bool = True, sampling: Sampling = DRAWN
) -> Bench:
    """Return three sequences with prompts in their pages."""
    bench = Bench.build(
        family, cache, on_gpu=True, device="cuda", deterministic=True, has_graphs=has_graphs
    )
    bench.add(3, 3, sampling)
    bench.step([some_tokens(62, 1), some_tokens(130, 2), some_tokens(10, 3)])
    return bench


@EVERY_MODEL
@EVERY_SAMPLING
def test_replays_give_the_bits_of_launching_op_by_op(
    family: Family, cache: CacheName, sampling: Sampling
) -> None:
    answers: list[list[StepResult]] = []
    memory = []
    for has_graphs in (False, True):
        bench = a_bench(family, cache, has_graphs=has_graphs, sampling=sampling)
        # of two buckets, the first twice
        steps = ([[1], [2], [3]], [[4], None, [6]], [[7], [8], [9]])
        answers.append([bench.step(tokens) for tokens in steps])
        memory.append([*bench.cache.latent_N, *bench.cache.index_keys.values()])
    assert answers[0] == answers[1]
    for ours, theirs in zip(*memory, strict=True):
        assert torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8))


@EVERY_MODEL
def test_replays_whose_masks_come_late_give_the_bits_of_launching_op_by_op(
    family: Family, cache: CacheName
) -> None:
    answers: list[list[StepResult]] = []
    for has_graphs in (False, True):
        bench = a_bench(family, cache, has_graphs=has_graphs)
        bench.step([[1], [2], [3]])
        bench.sequences[1].guide = a_guide({7}, VOCABULARY)
        # of two buckets, between steps that wait for nothing
        steps = ([[1], [2], [3]], [[4], None, [6]], [[7], [8], [9]], [[1], [2], [3]])
        answers.append([bench.step(tokens) for tokens in steps])
    assert answers[0] == answers[1]
    assert answers[1][0].tokens_S[1] == answers[1][2].tokens_S[1] == 7


@EVERY_MODEL
@EVERY_SAMPLING
def test_a_launched_step_waits_for_nothing_and_keeps_no_memory(
    family: Family, cache: CacheName, sampling: Sampling
) -> None:
    bench = a_bench(family, cache, sampling=sampling)
    for tokens in ([[1], [2], [3]], [[4], [5], [6]]):
        bench.step(tokens)
    before = torch.cuda.memory_allocated()
    for tokens in ([[1], [2], [3]], [[4], [5], [6]]):
        plan = bench.plan(tokens)
        with nobody_waits():
            handle = bench.start(plan)
        assert all(handle.collect().ok_S)
        del handle
    assert torch.cuda.memory_allocated() == before


@EVERY_MODEL
def test_a_chunk_waits_for_nothing_either(family: Family, cache: CacheName) -> None:
    bench = a_bench(family, cache)
    bench.step([[1] * 3, [2], [3] * 2])
    plan = bench.plan([[1] * 3, [2], [3] * 2])
    with nobody_waits():
        handle = bench.start(plan)
    assert all(handle.collect().ok_S)


def test_a_replayed_step_finds_what_was_damaged_since() -> None:
    bench = a_bench("glm", "fp8")
    assert bench.step([[1], [2], [3]]).ok_S == (True, True, True)
    bench.tags.arrays.tag_P[bench.sequences[1].held.lease.indices[0]] += 1
    assert bench.step([[1], [2], [3]]).ok_S == (True, False, True)
    assert bench.step([[1], [2], [3]]).ok_S == (True, False, True)


def test_steps_are_prepared_before_the_first_request() -> None:
    bench = Bench.build("kimi", "fp8", on_gpu=True, device="cuda")
    assert isinstance(bench.runner, DeviceRunner)
    bench.runner.warm_up()
    fill = bench.tags.arrays.fill_P
    assert not fill.any(), "what is captured touches no page"
