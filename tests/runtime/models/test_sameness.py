"""In deterministic mode a row's logits are the same bits, whatever shares its batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.paged_batch import PagedRun, PagedSequence
from support.tiny_checkpoints import BUILDERS, TinyCheckpoint, prompt

from tenantry_runtime.models.decoder import Decoder
from tenantry_runtime.models.loader import load_model

NUM_TOKENS = 140


@pytest.fixture(scope="module", params=BUILDERS)
def decoder(
    request: pytest.FixtureRequest, checkpoints: Callable[[str], TinyCheckpoint]
) -> Decoder:
    return load_model(checkpoints(request.param).directory, deterministic=True)


company = st.lists(st.tuples(st.integers(0, 130), st.integers(1, 40)), max_size=4)
"""Other sequences of a step: tokens already read, tokens new in it."""


@given(
    first=st.integers(1, NUM_TOKENS - 1),
    company=company,
    place=st.integers(0, 4),
    seed=st.integers(0, 99),
)
def test_logits_do_not_depend_on_the_batch_or_on_the_chunks(
    decoder: Decoder, first: int, company: list[tuple[int, int]], place: int, seed: int
) -> None:
    token_ids = prompt(NUM_TOKENS, seed)
    alone = PagedRun(decoder).read(token_ids)
    run = PagedRun(decoder, seed=seed)
    mine = PagedSequence()
    others = [PagedSequence() for _ in company]
    for n, (num_read, _) in enumerate(company):
        if num_read:
            run.step([(others[n], prompt(num_read, n))])
    pieces = [run.step([(mine, token_ids[:first])])[0]]
    chunks = [(others[n], prompt(num_new, 10 + n)) for n, (_, num_new) in enumerate(company)]
    chunks.insert(place, (mine, token_ids[first:]))
    pieces.append(run.step(chunks)[min(place, len(company))])
    assert torch.equal(torch.cat(pieces), alone)
