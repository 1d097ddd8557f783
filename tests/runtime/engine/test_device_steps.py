"""Steps on a device ask nothing of it, and those of a bucket are all the same to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from support.pretended_gpu import pretended_gpu, watched
from support.step_bench import GREEDY, NUM_PAGES, Bench
from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.core import Sampling
from tenantry_runtime.engine.device_runner import DeviceHandle
from tenantry_runtime.models.config import Family

DRAWN = Sampling(seed=1, temperature=0.7)
FILTERED = Sampling(seed=1, temperature=0.7, top_p=0.9, top_k=5)
ADJUSTED = Sampling(seed=1, repetition_penalty=1.2, frequency_penalty=0.5, logit_bias=((3, 1.0),))
TOLD = Sampling(seed=1, top_logprobs=3)
EVERY_MODEL = pytest.mark.parametrize(
    ("family", "cache"), [("kimi", "bf16"), ("kimi", "fp8"), ("glm", "bf16"), ("glm", "fp8")]
)


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with pretended_gpu():
        yield


@EVERY_MODEL
@pytest.mark.parametrize("deterministic", [False, True], ids=["fast", "deterministic"])
def test_a_step_is_one_copy_there_one_back_and_no_question(
    family: Family, cache: CacheName, deterministic: bool
) -> None:
    bench = a_bench(family, cache, deterministic=deterministic)
    prepare(bench)
    # chunks of a page and more beside single tokens; then a step of a bucket that is prepared
    for tokens in ([[1] * 70, [2], [3] * 9, [4]], [[1], [2], [3], [4]]):
        plan = bench.plan(tokens)
        with watched() as launches:
            bench.start(plan)
        assert (len(launches.to_device), len(launches.to_host)) == (1, 1)
        # faults of all, tokens of all and whether they are
        assert launches.to_host == [3 * 4]


@EVERY_MODEL
@pytest.mark.parametrize(
    "sampling",
    [GREEDY, DRAWN, FILTERED, ADJUSTED, TOLD],
    ids=["greedy", "drawn", "kept", "adjusted", "told"],
)
def test_steps_of_a_bucket_launch_the_same_whatever_they_compute(
    family: Family, cache: CacheName, sampling: Sampling
) -> None:
    bench = a_bench(family, cache, sampling=sampling)
    prepare(bench)
    steps = []
    for tokens in ([[4], None, [1], [2]], [[4], [3], [2], [1]]):
        plan = bench.plan(tokens)
        with watched() as launches:
            bench.start(plan)
        steps.append(launches)
    assert len(steps[0].noted) > 50
    assert steps[0] == steps[1]


def test_tokens_of_earlier_steps_do_not_pass_through_the_host() -> None:
    bench = a_bench("kimi", "fp8")
    handle = prepare(bench)
    plan = bench.plan([[0], [0], [0], [0]])
    with watched() as launches:
        bench.start(plan, [handle])
    assert (len(launches.to_device), len(launches.to_host)) == (1, 1)


def test_one_question_is_noticed() -> None:
    bench = a_bench("kimi", "fp8")
    with watched(), pytest.raises(RuntimeError, match="meta"):
        bench.tags.arrays.tag_P[0].item()
    with watched(), pytest.raises(AssertionError, match="the host waits"):
        bench.tags.arrays.tag_P.copy_(torch.zeros(NUM_PAGES + 1))


def prepare(bench: Bench) -> DeviceHandle:
    """Run the first step of a bucket."""
    with watched():
        return bench.start(bench.plan([[1], [2], [3], [4]]))


def a_bench(
    family: Family,
    cache: CacheName,
    *,
    deterministic: bool = False,
    sampling: Sampling = GREEDY,
) -> Bench:
    """Return sequences of 9, 130, 64 and 63 tokens."""
    bench = Bench.build(family, cache, on_gpu=True, device="meta", deterministic=deterministic)
    bench.add(4, 4, sampling)
    for sequence, length in zip(bench.sequences, (9, 130, 64, 63), strict=True):
        sequence.length = length
    return bench
