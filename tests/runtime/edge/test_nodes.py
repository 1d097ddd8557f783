from __future__ import annotations

import pytest

from support.plain_text import GLM, KIMI
from support.token_source import FakeTokenSource
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.errors import NodeUnavailable


def test_the_first_healthy_node_with_the_model_is_chosen() -> None:
    sick, other, good = (
        FakeTokenSource(),
        FakeTokenSource(models=[GLM.id]),
        FakeTokenSource(context_tokens=77),
    )
    sick.is_healthy = False

    placement = Nodes([sick, other, good]).place(KIMI.id)

    assert placement.node is good
    assert placement.context_tokens == 77


@pytest.mark.parametrize(
    "node",
    [
        FakeTokenSource(models=[GLM.id]),
        FakeTokenSource(phases=["prefill"]),
        FakeTokenSource(phases=["decode"]),
    ],
    ids=["another model", "no decode", "no prefill"],
)
def test_a_node_without_the_model_in_both_phases_does_not_serve_it(node: FakeTokenSource) -> None:
    nodes = Nodes([node])

    assert not nodes.can_serve(KIMI.id)
    with pytest.raises(NodeUnavailable):
        nodes.place(KIMI.id)


def test_a_node_that_recovers_serves_again() -> None:
    node = FakeTokenSource()
    nodes = Nodes([node])
    node.is_healthy = False
    assert not nodes.can_serve(KIMI.id)

    node.is_healthy = True

    assert nodes.can_serve(KIMI.id)
