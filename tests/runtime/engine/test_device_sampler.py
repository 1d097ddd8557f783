"""Sampling with parameters on the device draws what sampling with the host's draws."""

from __future__ import annotations

import torch
from hypothesis import given, strategies as st

from tenantry_runtime.cache.words import Layout
from tenantry_runtime.core import Sampling
from tenantry_runtime.engine.device_sampler import (
    SamplingKind,
    kind_for,
    sample_on_device,
    sampling_shapes,
    write_sampling,
)
from tenantry_runtime.engine.sampler import SamplerState, sample

VOCABULARY = 40
A_SAMPLING = st.builds(
    Sampling,
    seed=st.integers(0, 2**63 - 1),
    temperature=st.sampled_from([0.0, 1e-42, 0.3, 1.0, 2.0]),
    top_p=st.sampled_from([1.0, 0.9, 0.1]),
    top_k=st.sampled_from([None, 1, 7, 1000]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
)


@given(st.lists(A_SAMPLING, min_size=1, max_size=6), st.integers(0, 2), st.integers(0, 1 << 20))
def test_tokens_are_those_of_the_hosts_sampler(
    samplings: list[Sampling], num_padding: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    num_rows = len(samplings) + num_padding
    logits = torch.randn(num_rows, VOCABULARY, generator=generator) * 3
    logits[0, 3] = torch.nan if seed % 5 == 0 else 0.0
    states = [SamplerState(one.seed, seed + n) for n, one in enumerate(samplings)]
    layout = Layout.of(sampling_shapes(num_rows))
    words = layout.host()
    write_sampling(layout.fields(words), samplings, states, VOCABULARY)
    kind = kind_for(samplings)
    tokens, is_finite = sample_on_device(logits, layout.views(torch.from_numpy(words)), kind)
    wanted, were_finite = sample(logits[: len(samplings)], samplings, states)
    assert is_finite[: len(samplings)].tolist() == were_finite.tolist()
    assert ((tokens >= 0) & (tokens < VOCABULARY)).all()
    assert tokens[: len(samplings)][were_finite].tolist() == wanted[were_finite].tolist()


def test_a_step_computes_no_more_than_its_rows_ask_for() -> None:
    greedy, drawn = Sampling(seed=1, temperature=0.0, top_k=3), Sampling(seed=1, temperature=0.5)
    filtered = Sampling(seed=1, temperature=0.5, min_p=0.1)
    assert kind_for([greedy]) is SamplingKind.GREEDY
    assert kind_for([greedy, drawn]) is SamplingKind.DRAWING
    assert kind_for([filtered, drawn]) is SamplingKind.FILTERING
