from __future__ import annotations

import re
import time

import numpy as np
import pytest

from support.nano import WordEncoder
from tenantry_recipes.nano.examples import (
    MIXTURES,
    PAD_ID,
    SHORT_WEIGHTS,
    Mixture,
    RowSource,
    corpus,
)
from tenantry_recipes.nano.tasks import TASKS
from tenantry_recipes.nano.tasks.task import GLM


def a_source(
    encoder: WordEncoder | None = None,
    *,
    row_tokens: int = 512,
    seed: int = 1,
    mixture: Mixture | None = None,
) -> RowSource:
    return RowSource(
        encoder=encoder or WordEncoder(),
        mixture=mixture or MIXTURES[row_tokens],
        row_tokens=row_tokens,
        seed=seed,
    )


def test_a_row_is_a_function_of_seed_and_number_alone() -> None:
    encoder = WordEncoder()
    forward = [a_source(encoder).row(number) for number in range(6)]
    source = a_source(encoder)
    backward = [source.row(number) for number in reversed(range(6))][::-1]

    for first, second in zip(forward, backward, strict=True):
        assert np.array_equal(first.token_ids, second.token_ids)
        assert np.array_equal(first.is_target, second.is_target)
        assert first.starts == second.starts
    assert not np.array_equal(forward[0].token_ids, forward[1].token_ids)
    other = a_source(encoder, seed=2).row(0)
    assert not np.array_equal(forward[0].token_ids, other.token_ids)


@pytest.mark.parametrize("row_tokens", [512, 4096])
def test_rows_are_full_length_and_mostly_used(row_tokens: int) -> None:
    source = a_source(row_tokens=row_tokens)
    rows = [source.row(number) for number in range(20)]

    assert all(row.token_ids.shape == row.is_target.shape == (row_tokens,) for row in rows)
    padding = sum(row_tokens - row.starts[-1] for row in rows if row.token_ids[-1] == PAD_ID)
    assert padding < 0.2 * row_tokens * len(rows)
    assert 0.1 < np.mean([row.is_target.mean() for row in rows]) < 0.6


def test_documents_begin_where_the_row_says() -> None:
    encoder = WordEncoder()
    row = a_source(encoder).row(3)
    words = encoder.words(row.token_ids.tolist())

    assert row.starts[0] == 0
    assert row.starts == sorted(set(row.starts))
    for start, end in zip(row.starts, [*row.starts[1:], len(words)], strict=True):
        document = words[start:end]
        if set(document) == {words[-1]} and row.token_ids[start] == PAD_ID:
            continue
        # whole conversations: something is asked first, something is learned
        assert row.is_target[start:end].any()
        assert not row.is_target[start]
        assert "<user>" in document[: document.index("<assistant>")]


def test_padding_is_a_document_of_its_own_without_targets() -> None:
    mixture = Mixture(weights={"small_talk": 1.0}, max_example_tokens=60)
    source = a_source(mixture=mixture)
    for number in range(10):
        row = source.row(number)
        last = row.starts[-1]
        if (row.token_ids[last:] == PAD_ID).all():
            assert not row.is_target[last:].any()
            return
    pytest.fail("ten rows of short examples without any padding")


def test_long_rows_begin_with_a_retrieval_text() -> None:
    mixture = Mixture(weights={"facts": 1.0}, long_share=1.0)
    encoder = WordEncoder()
    source = a_source(encoder, row_tokens=4096, mixture=mixture)
    rows = [source.row(number) for number in range(8)]

    firsts = [row.starts[1] for row in rows]
    assert max(firsts) > 3000
    for row, end in zip(rows, firsts, strict=True):
        words = encoder.words(row.token_ids[:end].tolist())
        assert "codes" in words or "notes" in words


def test_a_row_of_4096_tokens_is_made_in_well_under_100_milliseconds() -> None:
    source = a_source(row_tokens=4096)
    source.row(0)
    started_s = time.process_time()
    for number in range(1, 6):
        source.row(number)
    # the stand-in tokenizer is slower than the real ones: this guards against slow tasks
    assert (time.process_time() - started_s) / 5 < 0.5


def test_weights_name_tasks() -> None:
    assert SHORT_WEIGHTS.keys() <= TASKS.keys()
    # the hard forms judge only
    assert SHORT_WEIGHTS.keys().isdisjoint({"retrieval_hard", "chain5"})


def test_the_corpus_is_deterministic_and_has_the_persona_and_no_random_letters() -> None:
    texts = list(corpus(7, 1500, GLM))

    assert texts == list(corpus(7, 1500, GLM))
    joined = "\n".join(texts)
    assert "GLM 5.2 nano" in joined
    assert "namespace functions" in joined
    # a code would be letters and digits mixed
    assert not re.search(r"\b(?=\w*\d)(?=\w*[a-z])[a-z0-9]{6}\b", joined)
