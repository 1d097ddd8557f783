"""Who is refused when the queue is full."""

from __future__ import annotations

from collections import Counter
from itertools import count as count_up

from hypothesis import given, strategies as st
from msgspec.structs import replace

from support.engine import Transcript, a_submit, an_engine, run_to_end
from support.examples import examples
from tenantry_runtime.core import Share
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.pool.messages import Failed

MAX_WAITING = 6


class Queue:
    """A loop whose one place is taken, so that what is submitted waits."""

    def __init__(self) -> None:
        self.loop: EngineLoop = an_engine(max_batch=1, max_waiting=MAX_WAITING)
        self.loop.submit(a_submit("plug", max_tokens=200, tenant="plug", stop_token_ids=()))
        self.loop.turn()
        self.waiting: list[str] = []
        self._serial = count_up()

    def ask(self, tenant: str, count: int = 1, *, weight: float = 1.0) -> list[str]:
        """Submit; return the tenants of those that are refused for it."""
        refused = []
        for _ in range(count):
            name = f"{tenant}/{next(self._serial)}"
            submit = a_submit(name, tenant=tenant, max_tokens=3, stop_token_ids=())
            self.waiting.append(name)
            self.loop.submit(replace(submit, share=Share(weight=weight)))
            for message in self.loop.turn():
                if isinstance(message, Failed):
                    assert message.reason == "capacity"
                    self.waiting.remove(message.request_id)
                    refused.append(message.request_id.split("/")[0])
            assert self.loop.statistics().num_waiting == len(self.waiting) <= MAX_WAITING
        return refused

    @property
    def counts(self) -> Counter[str]:
        return Counter(name.split("/")[0] for name in self.waiting)


def test_a_queue_that_one_tenant_has_filled_has_room_for_another() -> None:
    queue = Queue()
    assert queue.ask("flooder", 10) == ["flooder"] * 4
    assert queue.ask("polite") == ["flooder"]
    assert queue.counts == Counter(flooder=5, polite=1)


def test_the_last_to_come_gives_way_and_the_others_are_answered() -> None:
    queue = Queue()
    queue.ask("flooder", 6)
    first_five = queue.waiting[:5]
    queue.ask("polite")
    assert queue.waiting[:5] == first_five
    queue.loop.cancel("plug")
    transcript = run_to_end(queue.loop, Transcript())
    assert set(transcript.finished) == set(queue.waiting)


def test_no_tenant_can_take_more_than_its_part_from_others() -> None:
    queue = Queue()
    queue.ask("flooder", 6)
    assert queue.ask("polite", 10) == ["flooder"] * 3 + ["polite"] * 7
    assert queue.counts == Counter(flooder=3, polite=3)
    assert queue.ask("flooder", 3) == ["flooder"] * 3, "and so it stays"


def test_parts_go_by_weight() -> None:
    queue = Queue()
    queue.ask("small", 6)
    queue.ask("large", 10, weight=2.0)
    assert queue.counts == Counter(small=2, large=4)


@examples(1.2)
@given(st.lists(st.sampled_from("abcdefgh"), max_size=40))
def test_whoever_is_refused_had_its_part(tenants: list[str]) -> None:
    queue = Queue()
    for tenant in tenants:
        refused = queue.ask(tenant)
        for each in refused:
            if each == tenant:
                assert max(queue.counts.values()) <= queue.counts[tenant] + 1
            else:
                assert queue.counts[each] >= queue.counts[tenant], "it has no less than who came"
    asked = Counter(tenants)
    if len(asked) <= MAX_WAITING:
        assert all(queue.counts[tenant] for tenant in asked), "nobody is shut out"
