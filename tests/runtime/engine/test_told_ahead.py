"""What another node waits for is told while a step is computed, not after it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from support.engine import a_submit, an_engine
from support.fake_decoder import FakeDecoder
from support.pools import Cluster
from tenantry_runtime.pool.local_port import LocalExchange
from tenantry_runtime.pool.messages import NodeMessage, Part, Reserved, Started


def two_nodes() -> Cluster:
    exchange = LocalExchange()
    return Cluster(
        {
            "p": an_engine(phases=("prefill",), port=exchange.port("p", num_slots=8)),
            "d": an_engine(phases=("decode",), port=exchange.port("d", num_slots=8)),
        }
    )


def test_what_others_wait_for_is_told_before_the_step_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    forward = FakeDecoder.forward

    # Any: a decoder's own arguments
    def noted(*args: Any) -> Any:
        log.append("computed")
        return forward(*args)

    def told(message: NodeMessage) -> None:
        log.append(type(message).__name__)

    monkeypatch.setattr(FakeDecoder, "forward", noted)
    cluster = two_nodes()
    # so that the decode member has a batch to compute
    cluster.send(a_submit("first", max_tokens=20, stop_token_ids=()), "p", "d")
    while "tokens" not in cluster.errands["first"].said:
        cluster.turn()
    second = a_submit("second", max_tokens=3, stop_token_ids=())
    parts: dict[str, Part] = {"p": "prefill", "d": "decode"}
    for (address, part), message in zip(parts.items(), ("Started", "Reserved"), strict=True):
        log.clear()
        cluster.nodes[address].submit(replace(second, part=part))
        rest = cluster.nodes[address].turn(told)
        assert log == [message, "computed"]
        assert not any(isinstance(each, Started | Reserved) for each in rest)
