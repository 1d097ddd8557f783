"""Every session ranks the nodes, the same way everywhere and for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from typing import NamedTuple

from hypothesis import given, strategies as st

from tenantry_runtime.routing.rendezvous import ranked, session_key


class Node(NamedTuple):
    node: str


names = st.text(min_size=1, max_size=12)
nodes = st.lists(names, min_size=1, max_size=12, unique=True).map(
    lambda given: [Node(name) for name in given]
)


@given(nodes, st.binary(max_size=300), st.data())
def test_only_keys_of_a_removed_node_move_and_they_come_back(
    members: list[Node], key: bytes, data: st.DataObject
) -> None:
    before = ranked(key, members)
    removed = data.draw(st.sampled_from(members))
    rest = [member for member in members if member != removed]

    after = ranked(key, rest)

    assert after == [member for member in before if member != removed]
    assert ranked(key, [*rest, removed]) == before


def test_sessions_spread_evenly() -> None:
    members = [Node(f"node-{number}") for number in range(8)]

    first = Counter(
        ranked(session_key("t", "m", f"session-{number}"), members)[0] for number in range(8000)
    )

    # 1000 each, with a standard deviation of 30
    assert set(first) == set(members)
    assert all(850 < num_sessions < 1150 for num_sessions in first.values())


@given(st.tuples(names, names, names), st.tuples(names, names, names))
def test_no_two_sessions_have_one_key(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (session_key(*one) == session_key(*other)) == (one == other)


def test_the_order_is_the_same_in_every_process() -> None:
    program = (
        "from typing import NamedTuple\n"
        "from tenantry_runtime.routing.rendezvous import ranked, session_key\n"
        "Node = NamedTuple('Node', [('node', str)])\n"
        "nodes = {Node(f'node-{i}') for i in range(20)}\n"
        "print([ranked(session_key('t', 'm', str(i)), nodes) for i in range(20)])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
