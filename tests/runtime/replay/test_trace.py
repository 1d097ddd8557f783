"""A trace is read line by line; a bad line is named with its field."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from support.replaying import PUBLIC_TRACE, a_line, lines_of
from tenantry_runtime.replay.trace import TraceError, TraceOptions, TraceRequest, read_trace


def read(*lines: object, **options: Any) -> list[TraceRequest]:
    return list(read_trace(lines_of(*lines), TraceOptions(**options)))


def test_a_line_becomes_a_request() -> None:
    (request,) = read(a_line(timestamp=1500, hash_ids=[7, 9]))
    assert request == TraceRequest(
        number=0, arrival_s=1.5, num_prompt=600, num_output=5, blocks=(7, 9), block_tokens=512
    )


def test_empty_lines_and_unknown_fields_are_ignored() -> None:
    requests = read(a_line(), b"\n", a_line(chat_id=3))
    assert [request.number for request in requests] == [0, 1]


def test_scale_divides_lengths_and_blocks_and_rounds_up() -> None:
    (request,) = read(a_line(input_length=1001, hash_ids=[0, 1], output_length=3), scale=8)
    assert (request.num_prompt, request.num_output, request.block_tokens) == (126, 1, 64)
    assert len(request.blocks) == 2


def test_an_answer_of_no_tokens_is_one_token() -> None:
    (request,) = read(a_line(output_length=0))
    assert request.num_output == 1


def test_speed_shortens_the_time_between_requests() -> None:
    requests = read(a_line(), a_line(timestamp=3000), speed=2)
    assert [request.arrival_s for request in requests] == [0, 1.5]


def test_no_more_is_read_than_the_limit_asks_for() -> None:
    def lines() -> Iterator[bytes]:
        yield from lines_of(a_line(), a_line())
        raise AssertionError("the third line was read")

    assert len(list(read_trace(lines(), TraceOptions(limit=2)))) == 2


@pytest.mark.parametrize(
    ("line", "field", "problem"),
    [
        (b"{nope", None, "not JSON"),
        (b"\xff", None, "not JSON"),
        (b"[1]", None, "Expected `object`"),
        ({"timestamp": 0}, "input_length", "is missing"),
        (a_line(timestamp="0"), "timestamp", "got `str`"),
        (a_line(timestamp=-1), "timestamp", "in order of time"),
        (a_line(input_length=0, hash_ids=[]), "input_length", "at least 1"),
        (a_line(output_length=-2), "output_length", "negative"),
        (a_line(output_length=1.5), "output_length", "got `float`"),
        (a_line(hash_ids=[1]), "hash_ids", "600 tokens are 2 blocks of 512"),
        (a_line(hash_ids=[1, "2"]), "hash_ids[1]", "got `str`"),
    ],
)
def test_a_bad_line_is_named_with_its_field(line: object, field: str | None, problem: str) -> None:
    with pytest.raises(TraceError, match=r"^line 2") as caught:
        read(a_line(), line)
    assert (caught.value.line, caught.value.field) == (2, field)
    assert problem in str(caught.value)
    assert field is None or f"line 2: {field}: " in str(caught.value)


def test_time_that_runs_backwards_is_refused() -> None:
    with pytest.raises(TraceError, match="line 2: timestamp: 5 ms, after 10"):
        read(a_line(timestamp=10), a_line(timestamp=5))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"scale": 3}, "scale"),
        ({"scale": 0}, "scale"),
        ({"speed": 0}, "speed"),
        ({"limit": 0}, "limit"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named} is "):
        TraceOptions(**options)


@pytest.mark.skipif(not PUBLIC_TRACE.exists(), reason="the public trace is not here")
def test_the_public_trace_can_be_read() -> None:
    with PUBLIC_TRACE.open("rb") as lines:
        requests = list(islice(read_trace(lines, TraceOptions()), 100))
    assert len(requests) == 100
    assert (requests[0].num_prompt, requests[0].num_output) == (6758, 500)
    assert {request.blocks[0] for request in requests} == {0}
