"""Tenants that use several members of one pool: real loops and schedulers, a clock that a test moves."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from support.engine import a_submit, an_engine
from tenantry_runtime.engine.exchange import REPORT_INTERVAL_S
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.engine.policy import ServiceCost
from tenantry_runtime.pool.messages import PrefixChanges, ServedElsewhere, Step

NUM_PROMPT = 30
NUM_OUTPUT = 5
REQUEST_COST = NUM_PROMPT * ServiceCost().input_token + NUM_OUTPUT * ServiceCost().output_token
"""No time passes while a request runs, and no two prompts have anything in common."""

MAX_BATCH = 8


@dataclass
class World:
    """Members of one pool, each on a node of its own, and what their tenants were given."""

    max_batch: dict[str, int]
    is_exchanging: bool = True
    loops: dict[str, EngineLoop] = field(default_factory=dict)
    waiting: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Requests without a first token, by member and tenant."""
    given: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Cost of what each member has given each tenant."""

    def __post_init__(self) -> None:
        self._rng = random.Random(1)
        self._now_s = 0.0
        self._serial = 0
        self._begun: set[str] = set()
        for name, max_batch in self.max_batch.items():
            self.loops[name] = an_engine(
                max_batch=max_batch,
                num_pages=2 * MAX_BATCH,
                max_waiting=1000,
                clock_s=lambda: self._now_s,
            )

    def ask(self, member: str, tenant: str, count: int = 1) -> None:
        for _ in range(count):
            self._serial += 1
            self.loops[member].submit(
                a_submit(
                    f"{member}/{tenant}/{self._serial}",
                    prompt=[self._rng.randrange(2, 23) for _ in range(NUM_PROMPT)],
                    max_tokens=NUM_OUTPUT,
                    tenant=tenant,
                    stop_token_ids=(),
                )
            )
            self.waiting[member, tenant] += 1

    def turn(self) -> None:
        for loop in self.loops.values():
            for message in loop.turn():
                if isinstance(message, PrefixChanges):
                    continue
                assert isinstance(message, Step), message
                for tokens in message.sequences:
                    self._count(tokens.request_id, len(tokens.token_ids))

    def exchange(self) -> None:
        """Tell every member what the others have given, as edges do."""
        # time passes between steps alone, so that pages cost nothing
        self._now_s += REPORT_INTERVAL_S
        for number, (source, loop) in enumerate(self.loops.items(), 1):
            for report in loop.statistics().services if self.is_exchanging else ():
                for name, other in self.loops.items():
                    if name != source:
                        other.served_elsewhere(ServedElsewhere(incarnation=number, report=report))

    def _count(self, name: str, num_tokens: int) -> None:
        member, tenant, _ = name.split("/")
        cost = ServiceCost()
        if name not in self._begun:
            self._begun.add(name)
            self.waiting[member, tenant] -= 1
            self.given[member, tenant] += int(NUM_PROMPT * cost.input_token)
        self.given[member, tenant] += int(num_tokens * cost.output_token)


def polite_share_when_the_flooder_comes(world: World) -> tuple[int, int]:
    """Let a flooder use `there` and a polite tenant `here`, then both `here`.

    Return what the flooder had used when it came, and what the polite tenant had when the flooder was
    first served beside it.
    """
    world.ask("there", "flooder", 40)
    world.ask("here", "polite", 120)
    while world.waiting["there", "flooder"]:
        world.turn()
        world.exchange()
    used = world.given["there", "flooder"]
    assert used > 3 * world.given["here", "polite"], "it floods"

    world.ask("here", "flooder", 40)
    while not world.given["here", "flooder"]:
        world.turn()
        world.exchange()
    assert world.waiting["here", "polite"], "it has work all the time"
    return used, world.given["here", "polite"]


def test_a_flooder_of_one_member_comes_second_at_another_by_what_it_used() -> None:
    world = World({"there": MAX_BATCH, "here": 1})
    used, polite = polite_share_when_the_flooder_comes(world)
    assert abs(polite - used) <= 2 * REQUEST_COST


def test_members_that_tell_each_other_nothing_serve_the_flooder_at_once() -> None:
    world = World({"there": MAX_BATCH, "here": 1}, is_exchanging=False)
    used, polite = polite_share_when_the_flooder_comes(world)
    assert polite < used / 2


@pytest.mark.parametrize("interval", [1, 10, 50])
def test_what_a_flooder_takes_too_much_is_bounded_by_what_others_give_between_two_reports(
    interval: int,
) -> None:
    """It is served by all members; a polite tenant asks one of them, and is behind all the time."""
    world = World({"a": MAX_BATCH, "b": MAX_BATCH, "c": 2})
    most: Counter[str] = Counter()
    before = dict.fromkeys("ab", 0)
    for turn in range(600):
        for member in world.loops:
            if world.waiting[member, "flooder"] < 2 * MAX_BATCH:
                world.ask(member, "flooder")
        if world.waiting["c", "polite"] < 2 * MAX_BATCH:
            world.ask("c", "polite")
        world.turn()
        if turn % interval == 0:
            world.exchange()
            for member in before:
                given = world.given[member, "flooder"]
                most[member] = max(most[member], given - before[member])
                before[member] = given

    # what both others may give it before the third hears of it, and what is in its batch already
    bound = most.total() + 2 * (2 + 1) * REQUEST_COST
    polite, flooder = world.given["c", "polite"], world.given["c", "flooder"]
    assert flooder <= bound
    assert polite > 3 * flooder


def test_a_member_that_starts_anew_is_not_charged_the_past_of_the_others() -> None:
    world = World({"there": MAX_BATCH, "here": 1})
    for _ in range(30):
        world.ask("there", "old", 8)
        while world.waiting["there", "old"]:
            world.turn()
            world.exchange()
    fresh = World({"there": 1, "here": 1})
    (report,) = world.loops["there"].statistics().services
    fresh.loops["here"].served_elsewhere(ServedElsewhere(incarnation=1, report=report))
    fresh.ask("here", "old", 5)
    fresh.ask("here", "new", 5)
    while fresh.waiting["here", "new"] > 3:
        fresh.turn()
    assert fresh.given["here", "old"] >= REQUEST_COST, "they take turns"
