"""Damaged formats are what they are said to be, and their distance shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tenantry_recipes.formats.contexts import QUESTIONS
from tenantry_recipes.formats.damage import ShortRope, round_to_int3, with_mantissa_bits
from tenantry_recipes.formats.divergence import Divergence, Rows, Side, diverge, pages_at
from tenantry_recipes.formats.items import ItemSource
from tenantry_recipes.formats.judging import asking_order
from tenantry_recipes.formats.variants import (
    FP8_CACHE,
    INT3_EXPERTS,
    INT4_EXPERTS,
    RELEASED,
    SHORT_ROPE,
    Loaded,
    Variant,
    load_variant,
)
from tenantry_recipes.nano.evaluate import Trial
from tenantry_recipes.nano.scoring import is_right
from tenantry_runtime.core import PAGE_TOKENS

GLM = "glm-5.2-nano"


def test_two_mantissa_bits_leave_four_values_between_powers_of_two() -> None:
    values = torch.linspace(1, 2, 1001)[:-1]
    kept = with_mantissa_bits(torch.cat((values, -values * 8)), 2)

    assert sorted(set(kept[:1000].tolist())) == [1.0, 1.25, 1.5, 1.75, 2.0]
    assert torch.equal(kept[1000:], -8 * kept[:1000])


def test_mantissas_round_as_the_format_of_two_bits_does() -> None:
    values = torch.randn(4096, generator=torch.Generator().manual_seed(0))

    expected = values.to(torch.float8_e5m2).float()
    assert torch.equal(with_mantissa_bits(values, 2), expected)


def test_rope_values_of_two_bits_are_kept_by_fp8_rows_as_they_are() -> None:
    values = with_mantissa_bits(torch.randn(512, generator=torch.Generator().manual_seed(1)), 2)

    scaled = values[values.abs() > 2**-6]
    assert torch.equal(scaled.to(torch.float8_e4m3fn).float(), scaled)


def test_int3_leaves_eight_levels_in_a_group() -> None:
    weight = torch.randn(4, 96, generator=torch.Generator().manual_seed(2))
    kept = round_to_int3(weight)

    for row in kept:
        for group in row.split(32):
            assert len(set(group.tolist())) <= 8
    error = (kept - weight).square().mean().sqrt() / weight.square().mean().sqrt()
    # a step is two sevenths of the largest of 32 normal values, 2.07 on average: 0.59 / sqrt(12)
    assert error.item() == pytest.approx(0.17, abs=0.03)


def test_columns_that_fill_no_group_are_rounded_too() -> None:
    assert round_to_int3(torch.randn(2, 40)).shape == (2, 40)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("converted")


@pytest.fixture(scope="module")
def released(work: Path) -> Loaded:
    return load_variant(GLM, RELEASED, work=work, threads=1)


@pytest.fixture(scope="module")
def items(released: Loaded) -> ItemSource:
    return ItemSource(text=released.text, seed=0)


def some_prompts(items: ItemSource, count: int) -> list[list[int]]:
    """Return prompts of one context that have an answer of some length: a call."""
    return [items.prompt_ids(each) for each in items.context("tools", 512, 0)[:count]]


def distances(
    released: Loaded, items: ItemSource, variant: Variant, work: Path, *, streams: int = 3
) -> list[Divergence]:
    candidate = load_variant(GLM, variant, work=work, threads=1)
    prompts = some_prompts(items, streams)
    reference, other = (Side.of(each, places=streams + 1) for each in (released, candidate))
    return diverge(reference, other, [prompts], streams=streams)


def test_a_variant_is_at_no_distance_from_itself(
    released: Loaded, items: ItemSource, work: Path
) -> None:
    for each in distances(released, items, RELEASED, work):
        assert each.num_tokens == each.num_same > 5
        assert each.total_nats == 0.0


def test_nothing_but_the_rope_bits_is_damaged(items: ItemSource, work: Path) -> None:
    served = load_variant(GLM, FP8_CACHE, work=work, threads=1)
    assert not isinstance(served.decoder, ShortRope)
    # as many bits as a float32 has
    whole = replace(served, decoder=ShortRope(served.decoder, mantissa_bits=23))
    reference, other = (Side.of(each, places=2) for each in (served, whole))

    (apart,) = diverge(reference, other, [some_prompts(items, 1)], streams=1)
    assert apart.num_same == apart.num_tokens
    assert apart.total_nats / apart.num_tokens < 1e-5


@pytest.mark.slow
def test_damage_is_further_away_than_what_is_served(
    released: Loaded, items: ItemSource, work: Path
) -> None:
    served = {
        variant.name: sum(
            each.total_nats for each in distances(released, items, variant, work, streams=6)
        )
        for variant in (FP8_CACHE, SHORT_ROPE, INT4_EXPERTS, INT3_EXPERTS)
    }

    assert 0 < served["fp8 cache"] < served["short rope"]
    assert 0 < served["int4 experts"] < served["int3 experts"]


def test_step_by_step_distributions_are_those_of_one_pass(
    released: Loaded, items: ItemSource
) -> None:
    """Chunks and steps of a sequence among others, against the whole of it at once."""
    ids = items.prompt_ids(items.context("lists", 1024, 0)[0])
    vocab_size = released.text.vocab_size
    whole = Side.of(released, places=1).log_probabilities([Rows(pages_at(0), 0, ids)], vocab_size)
    side = Side.of(released, places=2)
    mine, other = pages_at(1), pages_at(0)
    side.log_probabilities([Rows(mine, 0, ids[:512])], vocab_size)
    side.log_probabilities([Rows(mine, 512, ids[512:-1]), Rows(other, 0, ids[:700])], vocab_size)
    last = side.log_probabilities(
        [Rows(other, 700, ids[:1]), Rows(mine, len(ids) - 1, ids[-1:])], vocab_size
    )

    torch.testing.assert_close(last[1:], whole, rtol=0, atol=2e-2)


def test_answers_behind_pages_that_were_read_once_are_those_behind_ones_of_their_own(
    released: Loaded, items: ItemSource, work: Path
) -> None:
    candidate = load_variant(GLM, FP8_CACHE, work=work, threads=1)
    prompts = some_prompts(items, 4)
    reference, other = (Side.of(each, places=6) for each in (released, candidate))

    together = diverge(reference, other, [prompts], streams=2)
    apart = diverge(reference, other, [[prompt] for prompt in prompts], streams=2)
    for one, each in zip(together, apart, strict=True):
        assert one.num_tokens == each.num_tokens
        assert one.total_nats == pytest.approx(each.total_nats, rel=0.2, abs=1e-3)


@pytest.fixture(params=[FP8_CACHE, SHORT_ROPE, INT4_EXPERTS, INT3_EXPERTS], ids=lambda v: v.name)
def variant(request: pytest.FixtureRequest) -> Iterator[Variant]:
    yield request.param


def test_every_variant_answers_in_an_engine(
    variant: Variant, items: ItemSource, work: Path
) -> None:
    loaded = load_variant(GLM, variant, work=work, threads=1)
    examples = items.context("retrieval", 512, 0)[:4]
    asks = [Trial(example).ask(max(example.targets)) for example in examples]
    with loaded.responder(streams=2, threads=1) as responder:
        for streams in (1, 2):
            answers = responder.respond(asks, streams=streams)
            verdicts = [
                is_right(check, answer)
                for example, answer in zip(examples, answers, strict=True)
                for check in example.checks.values()
            ]

            assert len(verdicts) == 4
            assert any(verdicts)


def test_a_context_is_read_once_for_all_its_items_and_streams(
    released: Loaded, items: ItemSource
) -> None:
    found = items.items("lists", 512, range(2 * QUESTIONS))
    order = asking_order(512, found)
    asks = [Trial(found[number]).ask(max(found[number].targets)) for number in order]
    num_each = [items.prompt_tokens(found[number]) for number in order]
    encode = items.encoder.encode
    with released.responder(streams=8, threads=1, encode=encode) as responder:
        responder.respond(asks, streams=8)
        first = responder.num_cached_tokens
        responder.respond(asks, streams=1)
        again = responder.num_cached_tokens - first

    # all but each context's first find the text, in whole pages
    assert first >= (2 * QUESTIONS - 2) * 0.6 * 512
    # then all whole pages of a prompt are known, as long as a token is left to compute
    assert again == sum((num - 1) // PAGE_TOKENS * PAGE_TOKENS for num in num_each)
