"""In deterministic mode a row's logits are the same bits, whatever shares its batch."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, strategies as st

from support.paged_batch import PagedRun, PagedSequence
from support.tiny_checkpoints import BUILDERS, TinyCheckpoint, prompt
from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.models.loader import load_model

Checkpoints = Callable[[str], TinyCheckpoint]

NUM_TOKENS = 70
FORMATS = pytest.mark.parametrize(
    ("dtype", "cache"),
    [
        pytest.param(torch.float32, "float32", id="f32"),
        pytest.param(torch.bfloat16, "bf16", id="bf16"),
        pytest.param(torch.float32, "fp8", id="f32-fp8"),
        pytest.param(torch.bfloat16, "fp8", id="bf16-fp8"),
    ],
)


class Loaded:
    """A deterministic decoder, and what it says to a prompt that it reads alone."""

    def __init__(self, checkpoint: TinyCheckpoint, dtype: torch.dtype, cache: CacheName) -> None:
        self._decoder = load_model(checkpoint.directory, dtype=dtype, deterministic=True)
        self._cache: CacheName = cache
        self.alone = functools.cache(self._alone)

    def run(self, seed: int) -> PagedRun:
        return PagedRun(self._decoder, seed=seed, cache=self._cache)

    def _alone(self, seed: int) -> torch.Tensor:
        return self.run(0).read(prompt(NUM_TOKENS, seed))


@pytest.fixture(
    scope="module",
    params=[("kimi_grouped", "float32"), ("glm52", "float32"), ("glm52", "fp8")],
    ids=["kimi", "glm", "glm-fp8"],
)
def loaded(request: pytest.FixtureRequest, checkpoints: Checkpoints) -> Loaded:
    name, cache = request.param
    return Loaded(checkpoints(name), torch.float32, cache)


@given(
    first_chunk=st.integers(1, NUM_TOKENS - 1),
    company=st.lists(st.tuples(st.sampled_from([0, 1, 9, 66]), st.integers(1, 20)), max_size=3),
    place=st.integers(0, 3),
    seed=st.integers(0, 3),
)
def test_logits_do_not_depend_on_company_or_chunks(
    loaded: Loaded, first_chunk: int, company: list[tuple[int, int]], place: int, seed: int
) -> None:
    run = loaded.run(seed)
    mine, *others = [PagedSequence() for _ in range(1 + len(company))]
    step = []
    for n, (other, (num_read, num_new)) in enumerate(zip(others, company, strict=True)):
        if num_read:
            run.step([(other, prompt(num_read, n))])
        step.append((other, prompt(num_new, 10 + n)))
    head, tail = prompt(NUM_TOKENS, seed).split([first_chunk, NUM_TOKENS - first_chunk])
    place = min(place, len(step))
    step.insert(place, (mine, tail))
    logits = torch.cat([run.step([(mine, head)])[0], run.step(step)[place]])
    assert torch.equal(logits, loaded.alone(seed))


@FORMATS
@pytest.mark.parametrize("name", BUILDERS)
def test_logits_token_by_token_are_those_of_one_chunk(
    checkpoints: Checkpoints, name: str, dtype: torch.dtype, cache: CacheName
) -> None:
    loaded = Loaded(checkpoints(name), dtype, cache)
    one_by_one = loaded.run(7).read(prompt(NUM_TOKENS, 3), [1] * NUM_TOKENS)
    assert torch.equal(one_by_one, loaded.alone(3))


@FORMATS
@pytest.mark.parametrize("name", BUILDERS)
def test_a_row_has_the_same_bits_in_company(
    checkpoints: Checkpoints, name: str, dtype: torch.dtype, cache: CacheName
) -> None:
    loaded = Loaded(checkpoints(name), dtype, cache)
    run = loaded.run(7)
    mine, decoding, prefilling = PagedSequence(), PagedSequence(), PagedSequence()
    run.step([(decoding, prompt(65, 1))])
    pieces = []
    for n, ids in enumerate(prompt(NUM_TOKENS, 3).split([40, 1, 1, 28])):
        others = [(decoding, prompt(1, n)), (prefilling, prompt(5, n))]
        pieces.append(run.step([*others[:1], (mine, ids), *others[1:]])[1])
    assert torch.equal(torch.cat(pieces), loaded.alone(3))


def test_fast_and_deterministic_mode_agree_within_rounding(tiny: TinyCheckpoint) -> None:
    token_ids = tiny.answers[0].token_ids
    fast, fixed = (
        PagedRun(load_model(tiny.directory, deterministic=deterministic)).read(token_ids, [90])
        for deterministic in (False, True)
    )
    torch.testing.assert_close(fast, fixed, rtol=0, atol=2e-5)
