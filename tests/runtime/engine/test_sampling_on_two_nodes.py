"""Penalties, biases and log probabilities where prefill and decode are on nodes of their own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.engine import a_submit, an_engine, assert_likelihoods, expected_answer, run_to_end
from support.pools import Cluster
from tenantry_runtime.core import PAGE_TOKENS, Sampling
from tenantry_runtime.pool.local_port import LocalExchange
from tenantry_runtime.pool.messages import Submit

SAMPLING = Sampling(
    seed=3,
    temperature=1.0,
    frequency_penalty=0.2,
    presence_penalty=0.1,
    repetition_penalty=1.2,
    logit_bias=((4, 1.0),),
    top_logprobs=3,
)


def two_nodes(*, decode_pages: int) -> Cluster:
    exchange = LocalExchange()
    prefill = an_engine(phases=("prefill",), num_pages=32, port=exchange.port("p", num_slots=64))
    decode = an_engine(
        phases=("decode",), num_pages=decode_pages, port=exchange.port("d", num_slots=64)
    )
    return Cluster({"p": prefill, "d": decode})


def a_request(number: int) -> Submit:
    return a_submit(
        f"r{number}",
        prompt=[(number + 3 * n) % 23 + 1 for n in range(1 + 20 * number)],
        max_tokens=3 * PAGE_TOKENS,
        sampling=replace(SAMPLING, seed=number),
        stop_token_ids=(),
    )


@pytest.mark.parametrize("decode_pages", [8, 32], ids=["preempted", "at once"])
def test_two_nodes_say_what_one_says(decode_pages: int) -> None:
    submits = [a_request(number) for number in range(6)]
    cluster, alone = two_nodes(decode_pages=decode_pages), an_engine(num_pages=64)
    for submit in submits:
        cluster.send(submit, "p", "d")
        alone.submit(submit)
    transcript, expected = cluster.run_to_end(), run_to_end(alone)
    assert not transcript.failed
    assert transcript.tokens == expected.tokens
    assert transcript.logprobs == expected.logprobs
    for submit in submits:
        answer = transcript.tokens[submit.request_id]
        assert answer == expected_answer(submit)
        assert_likelihoods(transcript.logprobs[submit.request_id], submit, answer)
    has_preempted = any(errand.num_restarts for errand in cluster.errands.values())
    assert has_preempted == (decode_pages == 8)
