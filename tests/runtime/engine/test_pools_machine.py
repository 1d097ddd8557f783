"""Two nodes that turn at their own pace, cancels, lost nodes and late messages: no wrong token, no page lost."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from support.engine import a_submit, an_engine, expected_answer
from support.pools import Cluster, assert_nothing_is_left
from tenantry_runtime.core import Sampling
from tenantry_runtime.pool.local_port import LocalExchange

LENGTHS = st.integers(1, 200) | st.sampled_from([63, 64, 65, 127, 128, 129])
DECODE_PAGES = 6


class PoolsMachine(RuleBasedStateMachine):
    """Any order of arrivals, cancels and turns of either node."""

    @initialize(
        num_slots=st.sampled_from([1, 3, 64]),
        handoff_bytes=st.sampled_from([1, 1024, 1 << 20]),
        chunk_tokens=st.sampled_from([16, 64, 300]),
        runs_ahead=st.booleans(),
    )
    def open(self, num_slots: int, handoff_bytes: int, chunk_tokens: int, runs_ahead: bool) -> None:
        exchange = LocalExchange()
        self.cluster = Cluster(
            {
                "p": an_engine(
                    phases=("prefill",),
                    num_pages=8,
                    max_batch=4,
                    chunk_tokens=chunk_tokens,
                    handoff_bytes=handoff_bytes,
                    runs_ahead=runs_ahead,
                    port=exchange.port("p", num_slots=num_slots),
                ),
                "d": an_engine(
                    phases=("decode",),
                    num_pages=DECODE_PAGES,
                    max_batch=4,
                    handoff_bytes=handoff_bytes,
                    runs_ahead=runs_ahead,
                    port=exchange.port("d", num_slots=num_slots),
                ),
            }
        )
        self.canceled: set[str] = set()

    @rule(
        num_prompt=LENGTHS,
        first=st.integers(1, 3),
        max_tokens=st.integers(1, 120),
        tenant=st.sampled_from(["acme", "globex"]),
        seed=st.integers(0, 3),
    )
    def send(self, num_prompt: int, first: int, max_tokens: int, tenant: str, seed: int) -> None:
        submit = a_submit(
            f"r{len(self.cluster.errands)}",
            # few beginnings, so that prefixes are found
            prompt=[(first + 7 * n) % 23 + 1 for n in range(num_prompt)],
            max_tokens=max_tokens,
            tenant=tenant,
            sampling=Sampling(seed=seed, temperature=float(seed % 2)),
        )
        self.cluster.send(submit, "p", "d")

    @rule(address=st.sampled_from("pd"), num_turns=st.integers(1, 20))
    def turn(self, address: str, num_turns: int) -> None:
        for _ in range(num_turns):
            self.cluster.read(address, self.cluster.nodes[address].turn())

    @rule(which=st.integers(0, 1000), sides=st.sampled_from(["p", "d", "pd"]))
    def cancel(self, which: int, sides: str) -> None:
        """An edge that loses one side first says so to the other a little later."""
        if not self.cluster.errands:
            return
        name = f"r{which % len(self.cluster.errands)}"
        self.canceled.add(name)
        for address in sides:
            self.cluster.nodes[address].cancel(name)

    @invariant()
    def books_are_in_order(self) -> None:
        for loop in self.cluster.nodes.values():
            assert loop.audit() == []

    @invariant()
    def nothing_wrong_is_told(self) -> None:
        transcript = self.cluster.transcript
        for name, told in transcript.tokens.items():
            expected = expected_answer(self.cluster.errands[name].submit)
            assert told == expected[: len(told)]
        assert set(transcript.failed) <= self.canceled

    def teardown(self) -> None:
        for name in self.canceled:
            self.cluster.cancel(name)
        transcript = self.cluster.run_to_end(max_turns=20_000)
        for name, errand in self.cluster.errands.items():
            if name not in self.canceled:
                assert transcript.tokens[name] == expected_answer(errand.submit)
        self.nothing_wrong_is_told()
        assert_nothing_is_left(*self.cluster.nodes.values())


TestPoolsUnderAnySchedule = PoolsMachine.TestCase
