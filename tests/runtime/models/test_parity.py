"""Logits and greedy tokens equal transformers' on the same files, however the tokens are fed."""

from __future__ import annotations

import pytest
import torch

from support.paged_batch import PagedRun, PagedSequence
from support.tiny_checkpoints import TinyCheckpoint
from tenantry_runtime.models.loader import load_model

TOLERANCE = 2e-5
"""Largest difference of a float32 logit; the logits' standard deviation is 1."""


def assert_equal_logits(logits: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(logits, expected, rtol=0, atol=TOLERANCE)


def test_a_prompt_in_one_chunk_has_transformers_logits(tiny: TinyCheckpoint) -> None:
    run = PagedRun(load_model(tiny.directory))
    for answer in tiny.answers:
        assert_equal_logits(run.read(answer.token_ids), answer.logits)


@pytest.mark.parametrize(
    "chunk_lengths", [(64, 64), (1, 62, 2, 63), (37, 41, 5)], ids=["pages", "edges", "odd"]
)
def test_a_prompt_in_chunks_has_transformers_logits(
    tiny: TinyCheckpoint, chunk_lengths: tuple[int, ...]
) -> None:
    answer = tiny.answers[0]
    run = PagedRun(load_model(tiny.directory))
    assert_equal_logits(run.read(answer.token_ids, chunk_lengths), answer.logits)


def test_a_prompt_token_by_token_has_transformers_logits(tiny: TinyCheckpoint) -> None:
    answer = tiny.answers[0]
    run = PagedRun(load_model(tiny.directory))
    one_by_one = run.read(answer.token_ids, [1] * answer.token_ids.shape[0])
    assert_equal_logits(one_by_one, answer.logits)


@pytest.mark.parametrize("deterministic", [False, True], ids=["fast", "deterministic"])
def test_sequences_in_one_batch_have_transformers_logits_each(
    tiny: TinyCheckpoint, deterministic: bool
) -> None:
    run = PagedRun(load_model(tiny.directory, deterministic=deterministic))
    sequences = [PagedSequence() for _ in tiny.answers]
    logits: list[list[torch.Tensor]] = [[] for _ in tiny.answers]
    rests = [answer.token_ids for answer in tiny.answers]
    # decode rows and prefill chunks side by side, each sequence at its own pace and in turn first
    paces = ((1, 60, 7), (90, 1, 1), (1, 35, 1), (3, 1, 61), (55, 0, 0))
    for turn, pace in enumerate(paces):
        order = [(n + turn) % len(rests) for n in range(len(rests))]
        fed = [n for n in order if pace[n]]
        steps = run.step([(sequences[n], rests[n][: pace[n]]) for n in fed])
        for n, step_logits in zip(fed, steps, strict=True):
            logits[n].append(step_logits)
            rests[n] = rests[n][pace[n] :]
    assert [rest.shape[0] for rest in rests] == [0, 0, 0]
    for pieces, answer in zip(logits, tiny.answers, strict=True):
        assert_equal_logits(torch.cat(pieces), answer.logits)


@pytest.mark.parametrize("deterministic", [False, True], ids=["fast", "deterministic"])
def test_greedy_tokens_of_a_batch_are_those_that_transformers_generates(
    tiny: TinyCheckpoint, deterministic: bool
) -> None:
    run = PagedRun(load_model(tiny.directory, deterministic=deterministic))
    sequences = [PagedSequence() for _ in tiny.answers]
    fed = [answer.token_ids for answer in tiny.answers]
    tokens: list[list[int]] = [[] for _ in tiny.answers]
    for _ in tiny.answers[0].greedy:
        steps = run.step(list(zip(sequences, fed, strict=True)))
        fed = [logits[-1:].argmax(-1) for logits in steps]
        for told, token in zip(tokens, fed, strict=True):
            told.append(int(token))
    assert tokens == [answer.greedy for answer in tiny.answers]
