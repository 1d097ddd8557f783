"""Decoders with compiled ops, without them, and the passes that make them ready."""

from __future__ import annotations

import pytest
import torch

from support.paged_batch import PagedRun, PagedSequence, poisoned_cache
from support.tiny_checkpoints import TinyCheckpoint
from tenantry_kernels import choice
from tenantry_runtime.cache.formats import SERVED_FORMATS, CacheName
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.models import load_model, warm_up

CACHES = pytest.mark.parametrize("cache", SERVED_FORMATS)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])


def logits_of_all(run: PagedRun, tiny: TinyCheckpoint) -> list[torch.Tensor]:
    """Read all prompts side by side: a long and a short chunk of each, then all token by token."""
    sequences = [PagedSequence() for _ in tiny.answers]
    prompts = [answer.token_ids for answer in tiny.answers]
    pieces = [
        [logits]
        for logits in run.step([(s, p[:40]) for s, p in zip(sequences, prompts, strict=True)])
    ]
    short = run.step([(s, p[40:42]) for s, p in zip(sequences, prompts, strict=True)])
    for n, logits in enumerate(short):
        pieces[n].append(logits)
    for at in range(42, max(map(len, prompts))):
        going = [n for n, prompt in enumerate(prompts) if at < len(prompt)]
        step = run.step([(sequences[n], prompts[n][at : at + 1]) for n in going])
        for n, logits in zip(going, step, strict=True):
            pieces[n].append(logits)
    return [torch.cat(of_one) for of_one in pieces]


@pytest.mark.parametrize("has_compiler", [True, False], ids=["compiled", "torch"])
def test_token_by_token_in_a_batch_the_logits_are_transformers(
    tiny: TinyCheckpoint, has_compiler: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "HAS_COMPILER", has_compiler)
    run = PagedRun(load_model(tiny.directory))
    for logits, answer in zip(logits_of_all(run, tiny), tiny.answers, strict=True):
        torch.testing.assert_close(logits, answer.logits, rtol=0, atol=2e-5)


@CACHES
def test_a_warm_up_writes_to_no_page_and_reads_the_first_one_alone(
    tiny: TinyCheckpoint, cache: CacheName
) -> None:
    decoder = load_model(tiny.directory)
    pages = poisoned_cache(decoder.config, num_pages=3, cache=cache)
    pools = [pool.view(torch.uint8) for pool in (*pages.latent_N, *pages.index_keys.values())]
    for pool in pools:
        pool[0] = 0
    warm_up(decoder, pages)
    for pool in pools:
        assert not pool[0].any() and (pool[1:3] == 0xFF).all()


@DTYPES
@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_after_a_warm_up_nothing_is_left_to_compile(
    tiny: TinyCheckpoint, dtype: torch.dtype, cache: CacheName
) -> None:
    from tenantry_kernels.cpu import fp8_pages, kernels

    decoder = load_model(tiny.directory, dtype=dtype)
    cache_format = SERVED_FORMATS[cache]
    warm_up(decoder, PagedCache.allocate(decoder.config, num_pages=3, cache_format=cache_format))
    compiled = [
        op
        for module in (kernels, fp8_pages)
        for op in vars(module).values()
        if hasattr(op, "signatures")
    ]
    before = [len(op.signatures) for op in compiled]
    logits_of_all(PagedRun(decoder, cache=cache), tiny)
    assert compiled and [len(op.signatures) for op in compiled] == before
