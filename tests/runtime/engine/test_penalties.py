"""Penalties and biases against a model in float64, token by token, and against transformers'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from transformers import RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor

from support.sampler_reference import adjusted
from tenantry_runtime.cache.words import Layout
from tenantry_runtime.core import Sampling
from tenantry_runtime.engine.device_sampler import (
    AdjustedRow,
    adjusted_on_device,
    sampling_shapes,
    write_adjusted,
    write_sampling,
)
from tenantry_runtime.engine.history import TokenHistory, is_adjusting
from tenantry_runtime.engine.penalties import adjust_rows, table_of
from tenantry_runtime.engine.sampler import SamplerState

VOCABULARY = 30
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), max_size=100)
SAMPLINGS = st.builds(
    Sampling,
    seed=st.just(1),
    frequency_penalty=st.sampled_from([0.0, 0.3, 2.0, -1.5]),
    presence_penalty=st.sampled_from([0.0, 0.7, -2.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.5]),
    logit_bias=st.dictionaries(
        st.integers(0, VOCABULARY - 1), st.floats(-100, 100, width=32), max_size=5
    ).map(lambda biases: tuple(biases.items())),
)


@dataclass(frozen=True)
class Row:
    sampling: Sampling
    prompt: list[int]
    answer: list[int]

    @property
    def tokens(self) -> list[int]:
        return [*self.prompt, *self.answer]

    def history(self) -> TokenHistory:
        return TokenHistory(self.sampling, self.tokens, len(self.prompt))


ROWS = st.builds(
    Row, sampling=SAMPLINGS, prompt=TOKENS.filter(lambda tokens: tokens != []), answer=TOKENS
)


def some_logits(num_rows: int, seed: int) -> torch.Tensor:
    return torch.randn(num_rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 4


def on_host(logits_RV: torch.Tensor, rows: list[Row]) -> torch.Tensor:
    tables = []
    for row in rows:
        history = row.history()
        history.follow(row.tokens, len(row.tokens))
        tables.append(table_of(history) if is_adjusting(row.sampling) else None)
    return adjust_rows(logits_RV, [row.sampling for row in rows], tables)


@given(st.lists(ROWS, min_size=1, max_size=4), st.integers(0, 1 << 20))
def test_logits_become_what_the_formulas_say(rows: list[Row], seed: int) -> None:
    logits = some_logits(len(rows), seed)
    before = logits.clone()
    found = on_host(logits, rows)
    for row, ours, theirs in zip(rows, found.numpy(), logits.numpy(), strict=True):
        expected = adjusted(theirs, row.sampling, row.prompt, row.answer)
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-4)
        if not is_adjusting(row.sampling):
            assert ours.tolist() == theirs.tolist()
    assert torch.equal(logits, before)


@given(st.lists(ROWS, min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 1 << 20))
def test_a_device_makes_the_same_bits_of_them(rows: list[Row], num_padding: int, seed: int) -> None:
    num_rows = len(rows) + num_padding
    logits = some_logits(num_rows, seed)
    layout = Layout.of(sampling_shapes(num_rows, 64))
    words = layout.host()
    fields = layout.fields(words)
    samplings = [row.sampling for row in rows]
    write_sampling(fields, samplings, [SamplerState(1, 1)] * len(rows), VOCABULARY)
    written: list[AdjustedRow | None] = []
    for row in rows:
        last = len(row.tokens) - 1
        history = row.history()
        # the last token may be known to the device alone
        history.follow(row.tokens[:-1], last)
        is_plain = not is_adjusting(row.sampling)
        table = table_of(history)
        written.append(
            None if is_plain else AdjustedRow(row.sampling, table, history.is_of_answer(last))
        )
    write_adjusted(fields, written, VOCABULARY)
    last_tokens = torch.tensor([row.tokens[-1] for row in rows] + [0] * num_padding)
    found = adjusted_on_device(logits, layout.views(torch.from_numpy(words)), last_tokens)
    assert torch.equal(found[: len(rows)], on_host(logits[: len(rows)], rows))


@given(ROWS, st.integers(0, 100))
def test_what_is_kept_as_tokens_come_is_what_all_of_them_give(row: Row, num_before: int) -> None:
    step_by_step, at_once = row.history(), row.history()
    for end in range(min(num_before, len(row.tokens)), len(row.tokens) + 1):
        step_by_step.follow(row.tokens, end)
    at_once.follow(row.tokens, len(row.tokens))
    # where it was preempted, it begins again with a part of its answer
    assert table_of(step_by_step).tolist() == table_of(at_once).tolist()


def test_a_table_grows_with_its_answer() -> None:
    history = TokenHistory(Sampling(seed=1, presence_penalty=1.0), [], 0)
    history.follow(range(1000), 1000)
    assert table_of(history)[0].tolist() == list(range(1000))
    assert set(table_of(history)[1].tolist()) == {3}


@pytest.mark.parametrize("penalty", [0.5, 1.3])
def test_repetition_is_penalized_as_transformers_do(penalty: float) -> None:
    row = Row(Sampling(seed=1, repetition_penalty=penalty), [3, 5, 3], [7, 9, 7])
    logits = some_logits(1, 7)
    processor = RepetitionPenaltyLogitsProcessor(penalty=penalty)
    expected = processor(torch.tensor([row.tokens]), logits.clone())
    assert torch.equal(on_host(logits, [row]), expected)


def test_biases_are_added_as_transformers_do_before_repetition_is_penalized() -> None:
    sampling = Sampling(seed=1, repetition_penalty=1.7, logit_bias=((5, -4.5), (9, 3.25)))
    row = Row(sampling, [5, 6], [9])
    logits, tokens = some_logits(1, 8), torch.tensor([row.tokens])
    bias = SequenceBiasLogitsProcessor([[[5], -4.5], [[9], 3.25]])
    repetition = RepetitionPenaltyLogitsProcessor(penalty=1.7)
    expected = repetition(tokens, bias(tokens, logits.clone()))
    assert torch.equal(on_host(logits, [row]), expected)


def test_frequency_and_presence_count_the_answer_alone() -> None:
    sampling = Sampling(seed=1, frequency_penalty=0.5, presence_penalty=0.25)
    row = Row(sampling, [1, 1, 1, 2], [2, 3, 3])
    found = on_host(torch.zeros(1, VOCABULARY), [row])[0].tolist()
    assert found[:5] == [0.0, 0.0, -0.75, -1.25, 0.0]


def test_a_token_that_is_none_is_ignored() -> None:
    biases = ((VOCABULARY, 5.0), (-1, 5.0), (2**40, 5.0), (2, 5.0))
    sampling = Sampling(seed=1, logit_bias=biases, repetition_penalty=2.0)
    row = Row(sampling, [VOCABULARY + 3], [])
    found = on_host(torch.zeros(1, VOCABULARY), [row])[0]
    assert found.nonzero().flatten().tolist() == [2]
