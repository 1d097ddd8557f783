"""Faults of every kind, among requests of many tenants: all are caught, and nobody else is refused."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from support.page_words import Request, a_prompt
from support.page_world import OPS, TENANTS, World, act
from tenantry_runtime.cache.device_passage import DevicePassage
from tenantry_runtime.cache.faults import FaultKind
from tenantry_runtime.cache.passage import CompiledPassage, MakePassage

SEEDS = st.integers(0, 2**32 - 1)
WHERE = {
    FaultKind.FOREIGN_PREFIX: ("prefill",),
    FaultKind.WRONG_PUSH: ("hand-off write",),
    FaultKind.LOST_APPEND: ("prefill", "decode"),
}
"""Where a kind can be caught, besides everywhere."""


class FaultMachine(RuleBasedStateMachine):
    """Allocator, prefix, append, abort, hand-off and fault steps; the world knows what must hold."""

    caught: ClassVar[Counter[tuple[FaultKind, str]]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.num_actions = 0

    def chance(self, seed: int) -> None:
        # hypothesis likes some seeds best; no two actions of one run are to be alike
        self.num_actions += 1
        self.world.rng.seed(f"{seed} {self.num_actions}")

    def kinds(self) -> list[FaultKind]:
        return self.world.rng.sample(list(FaultKind), 3)

    @rule(seed=SEEDS, tenant=st.sampled_from(TENANTS))
    def start(self, seed: int, tenant: str) -> None:
        self.chance(seed)
        self.world.start(tenant, a_prompt(self.world.rng))

    @rule(seed=SEEDS)
    def step_all(self, seed: int) -> None:
        self.chance(seed)
        self.world.step(list(self.world.requests))

    @rule(seed=SEEDS)
    def step_some(self, seed: int) -> None:
        self.chance(seed)
        self.world.step(self.some())

    @rule(seed=SEEDS, is_aborted=st.booleans())
    def hand_off(self, seed: int, is_aborted: bool) -> None:
        self.chance(seed)
        for request in self.some()[:1]:
            self.world.hand_off(request, is_aborted=is_aborted)

    @rule(seed=SEEDS)
    def abort(self, seed: int) -> None:
        self.chance(seed)
        for request in self.some()[:1]:
            self.world.end(request)

    @rule(lag=st.integers(0, 2))
    def finish_steps(self, lag: int) -> None:
        self.world.finish_steps(lag)

    @rule()
    def rest(self) -> None:
        self.world.rest()

    @rule()
    def release_what_was_taken(self) -> None:
        self.world.release_usurpers()

    @rule(seed=SEEDS, num_pages=st.integers(1, 3))
    def evict(self, seed: int, num_pages: int) -> None:
        self.world.trees.evict(num_pages)

    @rule(seed=SEEDS)
    def inject(self, seed: int) -> None:
        self.chance(seed)
        for kind in self.kinds():
            self.world.inject(kind)

    @rule(seed=SEEDS)
    def inject_and_step(self, seed: int) -> None:
        self.chance(seed)
        for kind in self.kinds():
            if self.world.inject(kind):
                self.world.step(list(self.world.requests))

    @rule(seed=SEEDS)
    def inject_and_hand_off(self, seed: int) -> None:
        self.chance(seed)
        for kind in self.kinds():
            self.world.inject(kind)
            for request in [r for r in self.world.requests if r.damage is not None]:
                self.world.hand_off(request)

    def some(self) -> list[Request]:
        requests = self.world.requests
        return self.world.rng.sample(requests, self.world.rng.randint(0, len(requests)))

    @invariant()
    def the_books_add_up(self) -> None:
        self.world.audit()

    def teardown(self) -> None:
        self.world.close()
        self.caught.update(self.world.caught)


def test_every_fault_is_caught_where_it_can_happen_and_nothing_else_is_refused() -> None:
    FaultMachine.caught.clear()
    run_state_machine_as_test(FaultMachine)
    least = settings().max_examples // 2
    by_kind: Counter[FaultKind] = Counter()
    for (kind, _), count in FaultMachine.caught.items():
        by_kind[kind] += count
    assert {kind: by_kind[kind] for kind in FaultKind if by_kind[kind] < least} == {}
    for kind in FaultKind:
        for where in WHERE.get(kind, ("prefill", "decode", "hand-off read")):
            assert FaultMachine.caught[kind, where], f"no {kind} was caught in {where}"


@pytest.mark.parametrize("op", OPS)
def test_a_check_that_one_op_goes_without_is_missed(op: str) -> None:
    with pytest.raises(AssertionError):
        for seed in range(40):
            world = World(seed, unchecked=frozenset({op}))
            for _ in range(100):
                act(world)


@pytest.mark.parametrize("passage", [CompiledPassage, DevicePassage.of])
def test_compiled_loops_and_torch_catch_the_same(passage: MakePassage) -> None:
    world = World(3, passage=passage)
    for _ in range(300):
        act(world)
    world.close()
    reference = World(3)
    for _ in range(300):
        act(reference)
    reference.close()
    assert world.caught == reference.caught
    assert world.caught
    assert world.num_told == reference.num_told
