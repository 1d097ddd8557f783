"""Masks of tokens, from a grammar to what is drawn, on the host and on a device."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
import torch
from hypothesis import given, strategies as st

from support.examples import examples
from support.gpu_path import gpu_path
from support.latent_pages import DEVICE
from support.pretended_gpu import Launches, pretended_gpu, watched
from support.step_bench import Bench
from support.tiny_decoder import VOCABULARY
from support.token_sets import STOP, a_broken_guide, a_guide
from tenantry_runtime.cache.words import Layout
from tenantry_runtime.core import Sampling
from tenantry_runtime.engine.constraints import MaskFinder, Masks
from tenantry_runtime.engine.device_sampler import (
    kind_for,
    sample_on_device,
    sampling_shapes,
    write_sampling,
)
from tenantry_runtime.engine.guide import Guide
from tenantry_runtime.engine.masks import mask_words, masked, masked_rows, num_mask_words
from tenantry_runtime.engine.sampler import SamplerState, sample

GREEDY = Sampling(seed=3, temperature=0.0)
A_SAMPLING = st.builds(
    Sampling,
    seed=st.integers(0, 2**63 - 1),
    temperature=st.sampled_from([0.0, 1e-42, 1e-6, 1.0, 2.0]),
    top_p=st.sampled_from([1.0, 0.9, 0.1]),
    top_k=st.sampled_from([None, 1, 7, 1000]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
)


def possible(guides: list[Guide | None], num_tokens: int) -> list[set[int]]:
    """Return the tokens of each row that are possible after its mask."""
    logits = torch.zeros(len(guides), num_tokens)
    allowed = masked_rows(logits, MaskFinder(num_tokens).find(guides))
    return [set(row.isfinite().nonzero()[:, 0].tolist()) for row in allowed]


@pytest.mark.parametrize("num_tokens", [31, 32, 33, 63, 64, 65, 127, 128, 129, 1000])
def test_exactly_the_tokens_of_a_grammar_are_possible_up_to_the_last(num_tokens: int) -> None:
    last = {num_tokens - 1}
    near = {0, 2, num_tokens - 3, num_tokens - 1}
    everything = set(range(num_tokens))
    for sets in ([last], [near, None, last], [None, everything - last, everything - {0}]):
        guides = [a_guide(each, num_tokens) if each else None for each in sets]
        assert possible(guides, num_tokens) == [each or everything for each in sets]


def test_tokens_past_those_that_may_be_drawn_are_cut_off() -> None:
    # the model has fewer logits than the vocabulary has tokens, or as many words of them
    assert possible([a_guide({5, 69}, 70)], 64) == [{5}]
    assert possible([a_guide({5, 69}, 70), a_guide({66}, 70)], 67) == [{5}, {66}]


def test_after_the_last_of_a_grammar_the_turn_ends() -> None:
    guide = a_guide({7}, 40)
    guide.advance(7)
    assert possible([guide], 40) == [{STOP}]
    assert guide.problem is None


def test_nothing_is_possible_once_a_guide_has_gone_wrong() -> None:
    for beside in ([], [a_guide({4}, 40), None]):
        broken = a_broken_guide(40)
        assert possible([broken, *beside], 40)[0] == set()
        assert "doesn't satisfy the grammar" in (broken.problem or "")


def test_a_guide_that_goes_wrong_within_a_step_lets_nothing_come() -> None:
    guides = [a_guide({4}, 40), a_guide({5}, 40), None]
    with mock.patch.object(Guide, "check", _goes_wrong):
        assert possible(guides, 40)[:2] == [set(), set()]


def _goes_wrong(guide: Guide) -> None:
    guide.problem = "it took too long"


def test_a_row_of_which_nothing_is_possible_has_no_token_and_the_others_have_theirs() -> None:
    guides = [a_guide({4}, 40), a_broken_guide(40), None]
    logits = torch.zeros(3, 40)
    logits[2, 9] = 1
    allowed = masked_rows(logits, MaskFinder(40).find(guides))
    states = [SamplerState(1, 5)] * 3
    for sampling in (GREEDY, Sampling(seed=1, top_p=0.9), Sampling(seed=1)):
        tokens, is_finite = sample(allowed, [sampling, sampling, GREEDY], states)
        assert is_finite.tolist() == [True, False, True]
        assert (int(tokens[0]), int(tokens[2])) == (4, 9)


def test_rows_without_a_grammar_cost_nothing() -> None:
    logits = torch.zeros(2, 40)
    masks = MaskFinder(40).find([None, None])
    assert masks is None
    assert masked_rows(logits, masks) is logits
    assert MaskFinder(40).find([None, a_guide({3}, 40), None]).words.shape == (1, 1)  # type: ignore[union-attr]


@examples(0.6)
@given(
    samplings=st.lists(A_SAMPLING, min_size=1, max_size=5),
    allowed=st.lists(st.sets(st.integers(2, 69), min_size=1, max_size=5), min_size=5, max_size=5),
    seed=st.integers(0, 1 << 20),
)
def test_device_and_host_draw_the_same_among_what_is_possible(
    samplings: list[Sampling], allowed: list[set[int]], seed: int
) -> None:
    num_tokens, num_rows = 70, len(samplings)
    guides = [a_guide(allowed[n], num_tokens) if n % 2 == 0 else None for n in range(num_rows)]
    masks = MaskFinder(num_tokens).find(guides)
    logits = torch.randn(num_rows + 1, num_tokens, generator=torch.Generator().manual_seed(seed))
    logits *= 20
    states = [SamplerState(one.seed, seed + n) for n, one in enumerate(samplings)]
    tokens, is_finite = sample(masked_rows(logits[:num_rows], masks), samplings, states)
    assert is_finite.all()
    for n in range(0, num_rows, 2):
        assert int(tokens[n]) in allowed[n]

    # with a row of padding
    layout = Layout.of(sampling_shapes(num_rows + 1))
    host = layout.host()
    write_sampling(layout.fields(host), samplings, states, num_tokens)
    views = layout.views(torch.from_numpy(host))
    words = torch.from_numpy(mask_words(masks, num_rows + 1, num_mask_words(num_tokens)))
    found = sample_on_device(masked(logits, words), views, kind_for(samplings))
    assert found.tokens_R[:num_rows].tolist() == tokens.tolist()
    assert found.is_finite_R.all()


@pytest.fixture
def gpu() -> Iterator[None]:
    with pretended_gpu():
        yield


@pytest.mark.usefixtures("gpu")
def test_a_step_is_the_same_whatever_its_masks_are() -> None:
    bench = a_bench_of_four()
    steps = []
    for allowed in ({5}, {7, 8}):
        bench.sequences[2].guide = a_guide(allowed, VOCABULARY)
        steps.append(launched(bench))
    assert steps[0] == steps[1]
    num_words = 4 * num_mask_words(VOCABULARY)
    bench.sequences[2].guide = None
    free = launched(bench)
    assert steps[0].to_device == [*free.to_device, num_words], "masks are all that is more"
    assert len(steps[0].to_host) == 1


@pytest.mark.usefixtures("gpu")
def test_masks_are_found_while_the_forward_pass_runs() -> None:
    bench = a_bench_of_four()
    bench.sequences[2].guide = a_guide({5}, VOCABULARY)
    launched(bench)
    find, num_noted = MaskFinder.find, list[int]()
    with watched() as launches:

        def note(finder: MaskFinder, guides: list[Guide | None]) -> Masks | None:
            num_noted.append(len(launches.noted))
            return find(finder, guides)

        with mock.patch.object(MaskFinder, "find", note):
            bench.start(bench.plan([[1], [2], [3], [4]]))
    [num_before] = num_noted
    products = [n for n, each in enumerate(launches.noted) if "mm" in each.split()[0]]
    assert products and products[-1] < num_before, "the logits are made by then"
    assert num_before < len(launches.noted), "and the tokens are not"


def a_bench_of_four() -> Bench:
    bench = Bench.build("kimi", "bf16", on_gpu=True, device="meta")
    bench.add(4, 2, Sampling(seed=1, temperature=0.7))
    return bench


def launched(bench: Bench) -> Launches:
    """Note a step whose bucket is prepared."""
    with watched():
        bench.start(bench.plan([[1], [2], [3], [4]]))
    with watched() as launches:
        bench.start(bench.plan([[1], [2], [3], [4]]))
    return launches


def test_a_masked_step_on_a_gpus_path_gives_the_cpus_tokens() -> None:
    results = []
    for on_gpu in (False, True):
        with gpu_path():
            bench = Bench.build("glm", "bf16", on_gpu=on_gpu, device=DEVICE if on_gpu else "cpu")
            bench.add(3, 1, Sampling(seed=5, temperature=1.0))
            bench.sequences[1].guide = a_guide({VOCABULARY - 1}, VOCABULARY)
            bench.sequences[2].guide = a_guide({3}, VOCABULARY)
            results.append(bench.step([[4], [5], [6]]).tokens_S)
    assert results[0][1:] == results[1][1:] == (VOCABULARY - 1, 3)
