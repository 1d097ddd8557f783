"""What travels: packed prompts, and messages of newer peers."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st

from support.fake_node import a_submit
from tenantry_runtime.core import ChosenLogprob, Sampling, Share, TokenLogprob
from tenantry_runtime.pool.frames import MAX_FRAME_BYTES, split
from tenantry_runtime.pool.messages import (
    Cancel,
    Constraint,
    Failed,
    HandoffEnd,
    SequenceTokens,
    ServedElsewhere,
    ServiceReport,
    Step,
    Submit,
    TenantService,
)
from tenantry_runtime.pool.wire import (
    PackedSubmit,
    decode_hello,
    decode_node_message,
    decode_statistics,
    decode_work,
    encode,
    pack,
    unpack,
)


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_a_prompt_survives_packing(token_ids: list[int]) -> None:
    submit = a_submit(prompt=token_ids)

    assert unpack(pack(submit)) == submit


def test_all_that_is_said_of_a_sequence_survives_packing() -> None:
    submit = Submit(
        request_id="r",
        tenant="acme",
        model="m",
        token_ids=[1, 2],
        sampling=Sampling(seed=3, temperature=0.5, stop=("end",)),
        stop_token_ids=(4, 5),
        max_tokens=6,
        session="s",
        part="decode",
        share=Share(weight=2.0, guaranteed=0.25, ceiling=0.75),
        may_wait=False,
        max_waiting=7,
        constraint=Constraint(lark="start: /a+/"),
        num_generated=1,
        is_background=True,
        first_token_within_ms=800,
        traceparent=f"00-{'a' * 32}-{'b' * 16}-01",
    )
    defaults = {field.name: field.default for field in msgspec.structs.fields(Submit)}
    assert all(getattr(submit, name) != value for name, value in defaults.items())

    assert unpack(pack(submit)) == submit
    assert decode_work(encode(pack(submit))) == pack(submit)


def test_ids_are_packed_as_little_endian_uint32() -> None:
    assert pack(a_submit(prompt=[1, 163_839])).token_ids == b"\x01\0\0\0\xff\x7f\x02\0"


def test_the_longest_prompt_takes_two_frames() -> None:
    message = encode(pack(a_submit(prompt=[163_839] * 262_144)))

    assert [len(frame) for frame in split(message)] == [
        1 + MAX_FRAME_BYTES,
        1 + len(message) - MAX_FRAME_BYTES,
    ]


def test_messages_are_told_apart_by_their_tags() -> None:
    submit = pack(a_submit())
    step = Step(step=7, sequences=[SequenceTokens("a", (1, 2))])
    failed = Failed(request_id="a", reason="capacity", message="full")

    assert decode_work(encode(submit)) == submit
    assert decode_work(encode(Cancel(request_id="a"))) == Cancel(request_id="a")
    assert decode_node_message(encode(step)) == step
    assert decode_node_message(encode(failed)) == failed


def test_fields_of_a_newer_peer_are_ignored() -> None:
    newer_hello = msgspec.msgpack.encode({"edge": "e", "version": 3, "colour": "blue"})
    newer_step = msgspec.msgpack.encode(
        {"type": "step", "step": 1, "sequences": [["a", [5], None, 0, None, [], "later field"]]}
    )

    assert decode_hello(newer_hello).version == 3
    assert decode_node_message(newer_step) == Step(step=1, sequences=[SequenceTokens("a", (5,))])


def test_service_of_other_members_is_told_apart_from_work() -> None:
    report = ServiceReport(
        model="m", phases=("decode",), number=3, accounts=(TenantService("acme", 2, 1.5),)
    )
    served = ServedElsewhere(incarnation=9, report=report)
    newer_account = ["acme", 2, 1.5, "later field"]
    newer = {
        "type": "served",
        "incarnation": 9,
        "report": {
            "model": "m",
            "phases": ["decode"],
            "number": 3,
            "accounts": [newer_account],
            "colour": "blue",
        },
        "colour": "blue",
    }

    assert decode_work(encode(served)) == served
    assert decode_work(msgspec.msgpack.encode(newer)) == served


@pytest.mark.parametrize("amount", [-1.0, float("-inf")])
def test_service_that_would_be_taken_back_is_refused(amount: float) -> None:
    account = TenantService("acme", 1, amount)
    report = ServiceReport(model="m", phases=("decode",), number=1, accounts=(account,))

    with pytest.raises(msgspec.DecodeError):
        decode_work(encode(ServedElsewhere(incarnation=1, report=report)))


def test_statistics_of_an_older_node_have_no_service() -> None:
    older = {"loop_turn_ns": 1, "num_running": 0, "num_waiting": 0, "num_free_pages": {}}

    statistics = decode_statistics(msgspec.msgpack.encode(older))

    assert (statistics.services, statistics.incarnation) == ((), 0)


def test_a_number_of_bytes_that_is_no_number_of_ids_is_refused() -> None:
    submit = pack(a_submit())
    broken = msgspec.structs.replace(submit, token_ids=b"\0\0\0")

    assert isinstance(broken, PackedSubmit)
    with pytest.raises(ValueError):
        unpack(broken)


def test_log_probabilities_survive_the_way() -> None:
    entry = ChosenLogprob(TokenLogprob(5, -0.25), (TokenLogprob(4, -0.125), TokenLogprob(5, -0.25)))
    tokens = SequenceTokens(request_id="a", token_ids=(5,), logprobs=(entry,))
    step = Step(step=1, sequences=[tokens])
    end = HandoffEnd(
        handoff=1,
        num_pages=2,
        first_token=5,
        queued_ns=1,
        prefill_started_ns=2,
        first_token_ns=3,
        num_prefill_chunks=1,
        first_logprob=entry,
    )

    assert decode_node_message(encode(step)) == step
    assert msgspec.msgpack.decode(encode(end), type=HandoffEnd) == end


def test_parameters_of_sampling_survive_the_way() -> None:
    sampling = Sampling(
        seed=1,
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        repetition_penalty=1.25,
        logit_bias=((3, -100.0), (7, 0.5)),
        top_logprobs=20,
    )
    submit = msgspec.structs.replace(a_submit(), sampling=sampling)
    packed = decode_work(encode(pack(submit)))
    assert isinstance(packed, PackedSubmit)
    assert unpack(packed).sampling == sampling
