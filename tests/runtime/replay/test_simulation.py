"""Hit rates and times of traces that are short enough to work them out by hand.

A block is a page of 64 tokens. By default a prompt's last block has one token, so that its other
blocks are what a later prompt finds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import pytest

from support.replaying import PUBLIC_TRACE, a_request, a_router, cached, simulate
from tenantry_runtime.replay.costs import StepCost
from tenantry_runtime.replay.endless import endless_hits
from tenantry_runtime.replay.fleet import FleetOptions, simulated
from tenantry_runtime.replay.measures import summary
from tenantry_runtime.replay.member import DecodeMember, PrefillMember
from tenantry_runtime.replay.placement import Oracle, Placement, RoundRobin
from tenantry_runtime.replay.routed import Routed
from tenantry_runtime.replay.trace import TraceOptions, read_trace
from tenantry_runtime.replay.workload import ReplayRequest, workload

PAGE = 64
ONE_SECOND = StepCost(fixed_s=1.0, token_s=0.0, read_s=0.0)


def a_conversation(first: int, *, session: str, begin_s: float, number: int) -> list[ReplayRequest]:
    """Return two turns: three blocks, then the first two of them and two more."""
    common = (0, first, first + 1)
    return [
        a_request(number, *common, first + 2, at_s=begin_s, session=session),
        a_request(number + 1, *common, first + 3, first + 4, at_s=begin_s + 10, session=session),
    ]


def by_time(*conversations: list[ReplayRequest]) -> list[ReplayRequest]:
    """Return all turns in order of time, numbered in that order."""
    turns = sorted(
        (turn for each in conversations for turn in each), key=lambda turn: turn.trace.arrival_s
    )
    return [
        a_request(number, *turn.trace.blocks, at_s=turn.trace.arrival_s, session=turn.session)
        for number, turn in enumerate(turns)
    ]


def with_sessions(prefill: Sequence[PrefillMember], decode: Sequence[DecodeMember]) -> Placement:
    return Routed(prefill, decode, router=a_router(), uses_sessions=True)


def with_prefixes(prefill: Sequence[PrefillMember], decode: Sequence[DecodeMember]) -> Placement:
    return Routed(prefill, decode, router=a_router(), uses_sessions=False)


def test_one_member_finds_the_blocks_that_two_prompts_begin_with() -> None:
    outcome = simulate([a_request(0, 1, 2, 3, 4), a_request(1, 1, 2, 5, 6, at_s=10)])
    assert cached(outcome) == [0, 2 * PAGE]
    # 2 pages of two prompts of 3 pages and a token
    assert summary(outcome.requests).hit_rate == 2 * PAGE / (2 * (3 * PAGE + 1))


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    prompts = [a_request(i, 1, 2, at_s=10 * i, num_prompt=2 * PAGE) for i in range(2)]
    assert cached(simulate(prompts)) == [0, PAGE]


def test_what_is_still_being_computed_is_not_found() -> None:
    outcome = simulate(
        [a_request(0, 1, 2, 3), a_request(1, 1, 2, 4, at_s=0.5), a_request(2, 1, 2, 5, at_s=0.5)]
    )
    # the second and the third begin together, when the first is done
    assert cached(outcome) == [0, 2 * PAGE, 2 * PAGE]
    outcome = simulate([a_request(0, 1, 2, 3), a_request(1, 1, 2, 4)], num_prefill=2)
    assert cached(outcome) == [0, 0]


def test_tenants_find_nothing_of_each_other() -> None:
    outcome = simulate(
        [a_request(i, 1, 2, at_s=10 * i, tenant=tenant) for i, tenant in enumerate("aba")]
    )
    assert cached(outcome) == [0, 0, PAGE]


def test_round_robin_computes_on_each_member_what_the_other_has() -> None:
    outcome = simulate([a_request(i, 1, 2, 3, at_s=10 * i) for i in range(4)], num_prefill=2)
    assert cached(outcome) == [0, 0, 2 * PAGE, 2 * PAGE]
    assert [use.num_requests for use in outcome.prefill] == [2, 2]
    assert [use.num_cached_tokens for use in outcome.prefill] == [2 * PAGE, 2 * PAGE]


@pytest.mark.parametrize("choose", [with_sessions, with_prefixes, Oracle])
def test_routing_finds_what_round_robin_loses(choose: type[Oracle]) -> None:
    turns = by_time(
        a_conversation(10, session="a", begin_s=0, number=0),
        a_conversation(20, session="b", begin_s=3, number=2),
        a_conversation(30, session="c", begin_s=6, number=4),
    )
    outcome = simulate(turns, num_prefill=2, choose=choose)
    assert cached(outcome)[3:] == [3 * PAGE] * 3


def test_the_oracle_does_not_send_everything_to_who_saw_the_common_block_first() -> None:
    prompts = [a_request(i, 0, 10 + i, 20 + i, at_s=10 * i) for i in range(4)]
    outcome = simulate(prompts, num_prefill=2, choose=Oracle)
    assert [use.num_requests for use in outcome.prefill] == [2, 2]


def test_the_oracle_follows_a_prefix_into_a_queue() -> None:
    prompts = [
        a_request(0, 0, 1, 10),
        a_request(1, 0, 1, 11, at_s=10),
        a_request(2, 0, 1, 12, at_s=10.1),
        a_request(3, 0, 2, 13, at_s=10.2),
    ]
    outcome = simulate(prompts, num_prefill=2, choose=Oracle)
    # only the last, which finds nothing anywhere, goes where nobody waits
    assert [use.num_requests for use in outcome.prefill] == [3, 1]
    assert cached(outcome) == [0, 2 * PAGE, 2 * PAGE, 0]


@pytest.mark.parametrize(("order", "is_found"), [((1, 2, 1, 3, 1), True), ((1, 2, 3, 1), False)])
def test_the_prompt_that_was_used_last_stays(order: tuple[int, ...], is_found: bool) -> None:
    """Room for two prompts of two pages, and for the one page that is not kept of any."""
    prompts = [
        a_request(i, 10 * which, 10 * which + 1, 99, at_s=10 * i) for i, which in enumerate(order)
    ]
    outcome = simulate(prompts, cache_pages=5)
    assert cached(outcome)[-1] == (2 * PAGE if is_found else 0)


def test_time_to_first_token_is_waiting_and_computing() -> None:
    cost = StepCost(fixed_s=1.0, token_s=0.01, read_s=0.0)
    prompts = [
        a_request(0, 1, 2, num_prompt=100),
        a_request(1, 3, 4, num_prompt=100, at_s=0.5),
        a_request(2, 5, 6, num_prompt=100, at_s=0.75),
    ]
    outcome = simulate(prompts, prefill=cost)
    # 1 s + 100 tokens; the other two begin at 2 and share a step: 1 s + 200 tokens
    assert [request.ttft_s for request in outcome.requests] == pytest.approx([2.0, 4.5, 4.25])
    assert outcome.prefill[0].busy_s == pytest.approx(5.0)


def test_a_long_prompt_is_computed_in_chunks() -> None:
    (request,) = simulate(
        [a_request(0, *range(5), num_prompt=5 * PAGE)], chunk_tokens=2 * PAGE
    ).requests
    assert request.ttft_s == 3.0


def test_answers_go_on_in_a_batch() -> None:
    prompts = [
        a_request(0, 1, 2, num_output=3),
        a_request(1, 3, 4, num_output=2, at_s=0.05),
    ]
    outcome = simulate(prompts, num_prefill=2, num_decode=1)
    times = {r.number: (r.first_token_s, r.last_token_s) for r in outcome.requests}
    # the second comes in when the step that runs then is over, at 1.1, and takes part in the next
    assert times[0] == pytest.approx((1.0, 1.2))
    assert times[1] == pytest.approx((1.1, 1.2))
    assert [r.num_output for r in outcome.requests] == [3, 2]


def test_a_prompt_waits_where_it_was_computed_until_there_are_pages_for_its_answer() -> None:
    prompts = [a_request(i, i, 10 + i, num_output=5) for i in range(2)]
    outcome = simulate(prompts, num_prefill=2, num_decode=1, decode_pages=3)
    times = {r.number: (r.first_token_s, r.last_token_s) for r in outcome.requests}
    assert times[0] == pytest.approx((1.0, 1.4))
    assert times[1] == pytest.approx((1.4, 1.8))


@pytest.mark.parametrize("choose", [Oracle, with_sessions])
def test_an_answer_that_lost_its_pages_is_prefilled_again_and_becomes_whole(
    choose: type[Oracle],
) -> None:
    # two answers grow from 2 pages to 5 where there are 7
    prompts = [a_request(i, i, 10 + i, num_output=200) for i in range(2)]
    outcome = simulate(prompts, num_prefill=2, num_decode=1, decode_pages=7, choose=choose)
    assert outcome.num_preemptions >= 1
    assert [request.num_output for request in outcome.requests] == [200, 200]
    # what it is billed by is the first prefill, and so is the hit rate
    assert cached(outcome) == [0, 0]
    assert sum(use.num_requests for use in outcome.prefill) == 2


class Listening(RoundRobin):
    """Keeps what it is told of the tokens of each placement."""

    def __init__(self, prefill: Sequence[PrefillMember], decode: Sequence[DecodeMember]) -> None:
        super().__init__(prefill, decode)
        self.heard: dict[tuple[str, int], list[int]] = {}
        self._num_ended: Counter[str] = Counter()

    def advanced(self, request_id: str, num_output: int) -> None:
        self.heard.setdefault((request_id, self._num_ended[request_id]), []).append(num_output)

    def ended(self, request_id: str, num_output: int | None, now_s: float) -> None:
        self._num_ended[request_id] += 1


def test_each_placement_is_told_of_its_own_tokens() -> None:
    """What an answer came back with is in the prompt that it was placed with."""
    placements: list[Listening] = []

    def listening(prefill: Sequence[PrefillMember], decode: Sequence[DecodeMember]) -> Listening:
        placements.append(Listening(prefill, decode))
        return placements[-1]

    prompts = [a_request(i, i, 10 + i, num_output=200) for i in range(2)]
    outcome = simulate(prompts, num_prefill=2, num_decode=1, decode_pages=7, choose=listening)
    assert outcome.num_preemptions >= 1
    (placement,) = placements
    assert len(placement.heard) > len(prompts)
    assert all(heard == list(range(1, len(heard) + 1)) for heard in placement.heard.values())
    assert sum(map(len, placement.heard.values())) == 400


def test_a_request_that_fits_no_cache_is_refused() -> None:
    with pytest.raises(ValueError, match=r"request 0 has 129 prompt and 1 output tokens"):
        simulate([a_request(0, 1, 2, 3)], cache_pages=2)


def test_an_endless_cache_finds_every_block_that_was_before() -> None:
    requests = [
        a_request(0, 1, 2, 3),
        a_request(1, 1, 2, 3),
        a_request(2, 1, 4, 3),
        a_request(3, 1, 2, 3, tenant="other"),
    ]
    # the second finds two blocks and no part of the last token; the third one
    assert endless_hits(requests) == (4 * 129, (0 + 2 + 1 + 0) * PAGE)


def test_an_endless_cache_agrees_with_a_member_that_has_room_and_time() -> None:
    requests = [
        a_request(i, *blocks, at_s=10 * i)
        for i, blocks in enumerate([(1, 2, 3), (1, 2, 4, 5), (1, 2, 4, 5, 6), (1, 7), (1, 2, 3)])
    ]
    outcome = simulate(requests)
    assert endless_hits(requests) == (
        sum(r.num_prompt for r in outcome.requests),
        sum(cached(outcome)),
    )


SCRIPT = """
import json, sys
from support.replaying import a_request, a_router, simulate
from tenantry_runtime.replay.routed import Routed
requests = [
    a_request(i, 0, i % 7, i % 7 + 10, i + 100, at_s=i * 0.3, num_output=1 + i % 5, session=f"s{i % 7}")
    for i in range(60)
]
outcome = simulate(
    requests,
    num_prefill=3,
    num_decode=2,
    cache_pages=40,
    choose=lambda prefill, decode: Routed(prefill, decode, router=a_router(), uses_sessions=True),
)
json.dump([(r.number, r.num_cached, r.first_token_s, r.last_token_s) for r in outcome.requests], sys.stdout)
"""


def test_a_simulation_is_the_same_in_every_process() -> None:
    def run(hash_seed: int) -> object:
        environment = {
            **os.environ,
            "PYTHONHASHSEED": str(hash_seed),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        command = [sys.executable, "-c", SCRIPT]
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return json.loads(run.stdout)

    assert run(1) == run(2)


def test_a_simulation_needs_no_torch_and_no_network() -> None:
    script = (
        "import sys, tenantry_runtime.replay.fleet\n"
        "print(*sorted({'torch', 'numpy', 'grpc', 'anyio'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


@pytest.mark.skipif(not PUBLIC_TRACE.exists(), reason="the public trace is not here")
def test_sessions_find_more_of_the_public_trace_than_turns_do() -> None:
    options = TraceOptions(scale=8, limit=400)

    def rate(routing: str) -> float:
        with PUBLIC_TRACE.open("rb") as lines:
            requests = list(islice(workload(read_trace(lines, options)), 400))
        fleet = FleetOptions(num_decode=0)
        return simulated(requests, options, fleet, num_prefill=8, routing=routing).hit_rate

    rates = {name: rate(name) for name in ("round-robin", "affinity", "oracle", "infinite")}
    assert rates["round-robin"] < rates["affinity"] <= rates["oracle"] < rates["infinite"]
