"""What the edge's nodes tell the router."""

from __future__ import annotations

import pytest

from support.plain_text import GLM, KIMI
from support.token_source import FakeTokenSource
from tenantry_runtime.cache.prefix_keys import pack_keys
from tenantry_runtime.core import Share
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.errors import NodeUnavailable
from tenantry_runtime.pool.messages import (
    NodeStatistics,
    PrefixChanges,
    ServedElsewhere,
    ServiceReport,
    TenantService,
)
from tenantry_runtime.routing.placement import Asked


def asked(**fields: object) -> Asked:
    return Asked(**{"tenant": "t", "model": KIMI.id, "num_tokens": 100, **fields})  # type: ignore[arg-type]


def test_a_healthy_node_with_the_model_is_chosen() -> None:
    sick, other, good = (
        FakeTokenSource(),
        FakeTokenSource(models=[GLM.id]),
        FakeTokenSource(context_tokens=77),
    )
    sick.is_healthy = False
    nodes = Nodes([sick, other, good])

    placement = nodes.place(asked())

    assert nodes.at(placement.prefill) is good
    assert placement.is_whole
    assert nodes.router.context_tokens(placement) == 77


def test_a_tenant_with_a_ceiling_has_no_more_context_than_pages() -> None:
    nodes = Nodes([FakeTokenSource(context_tokens=100_000)])
    placement = nodes.place(asked())
    member = nodes.all[0].description.members[0]

    halved = nodes.router.context_tokens(placement, Share(ceiling=0.5))

    assert halved == member.num_pages // 2 * 64
    assert nodes.router.context_tokens(placement, Share()) == 100_000


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
        nodes.place(asked())


def test_two_nodes_with_a_phase_each_serve_a_model_together() -> None:
    nodes = Nodes([FakeTokenSource(phases=["prefill"]), FakeTokenSource(phases=["decode"])])

    placement = nodes.place(asked())

    assert not placement.is_whole
    assert nodes.place_decode(placement).phase == "decode"


def test_a_node_that_recovers_serves_again() -> None:
    node = FakeTokenSource()
    nodes = Nodes([node])
    node.is_healthy = False
    assert not nodes.can_serve(KIMI.id)

    node.is_healthy = True

    assert nodes.can_serve(KIMI.id)


def test_a_draining_node_gets_nothing_new() -> None:
    node = FakeTokenSource()
    nodes = Nodes([node])
    assert nodes.can_serve(KIMI.id)

    nodes.reported(node.address, statistics(is_draining=True))
    assert not nodes.can_serve(KIMI.id)

    nodes.reported(node.address, statistics(is_draining=False))
    assert nodes.can_serve(KIMI.id)


def test_what_a_node_holds_is_known_until_it_starts_anew() -> None:
    one, two = FakeTokenSource(address="one"), FakeTokenSource(address="two")
    nodes = Nodes([one, two])
    changes = PrefixChanges(
        model=KIMI.id, phase="prefill", added=pack_keys([5]), removed=b"", is_whole=True
    )
    nodes.changed("two", two.description, changes)

    assert nodes.place(asked(keys=[5])).prefill.node == "two"

    two.restart()
    nodes.can_serve(KIMI.id)
    assert nodes.place(asked(keys=[5])).prefill.node == "one"


def test_unreadable_keys_change_nothing() -> None:
    node = FakeTokenSource()
    nodes = Nodes([node])

    nodes.changed(
        node.address,
        node.description,
        PrefixChanges(model=KIMI.id, phase="prefill", added=b"123", removed=b""),
    )

    assert nodes.can_serve(KIMI.id)


def test_what_a_node_has_given_is_told_to_others_of_its_pools_once() -> None:
    giver, fellow = FakeTokenSource(), FakeTokenSource()
    stranger = FakeTokenSource(models=[GLM.id])
    decoder = FakeTokenSource(phases=["decode"])
    nodes = Nodes([giver, fellow, stranger, decoder])
    first, second = (
        ServiceReport(
            model=KIMI.id,
            phases=("prefill",),
            number=number,
            accounts=(TenantService("acme", 1, 10.0 * number),),
        )
        for number in (1, 2)
    )

    for report in (first, first, second, second):
        nodes.reported(giver.address, statistics(services=(report,), incarnation=5))

    told = [ServedElsewhere(incarnation=5, report=report) for report in (first, second)]
    assert fellow.heard == told
    assert giver.heard == stranger.heard == decoder.heard == []


def test_a_node_that_starts_anew_counts_its_reports_from_the_start() -> None:
    giver, fellow = FakeTokenSource(), FakeTokenSource()
    nodes = Nodes([giver, fellow])
    for incarnation, number in [(5, 1), (5, 2), (6, 1)]:
        report = ServiceReport(model=KIMI.id, phases=("decode",), number=number, accounts=())
        nodes.reported(giver.address, statistics(services=(report,), incarnation=incarnation))

    assert [(each.incarnation, each.report.number) for each in fellow.heard] == [
        (5, 1),
        (5, 2),
        (6, 1),
    ]


def test_a_node_too_old_to_say_which_life_it_reports_of_is_not_passed_on() -> None:
    giver, fellow = FakeTokenSource(), FakeTokenSource()
    report = ServiceReport(model=KIMI.id, phases=("decode",), number=1, accounts=())

    Nodes([giver, fellow]).reported(giver.address, statistics(services=(report,), incarnation=0))

    assert fellow.heard == []


def statistics(
    *,
    is_draining: bool = False,
    services: tuple[ServiceReport, ...] = (),
    incarnation: int = 1,
) -> NodeStatistics:
    return NodeStatistics(
        loop_turn_ns=1,
        num_running=0,
        num_waiting=0,
        num_free_pages={},
        is_draining=is_draining,
        services=services,
        incarnation=incarnation,
    )
