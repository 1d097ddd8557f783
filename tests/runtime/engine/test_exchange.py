"""What members of a pool tell each other of the service that they have given."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from support.examples import examples
from tenantry_runtime.core import Phase, Share
from tenantry_runtime.engine.exchange import (
    FORGOTTEN_AFTER_S,
    OPEN_S,
    QUIET_S,
    REPORT_INTERVAL_S,
    YOUNG_REPORTS,
    GivenService,
    OthersService,
    ServiceExchange,
)
from tenantry_runtime.engine.fairness import VirtualCounters
from tenantry_runtime.engine.policy import Service
from tenantry_runtime.pool.messages import ServedElsewhere, ServiceReport, TenantService

WHOLE: tuple[Phase, ...] = ("prefill", "decode")


@dataclass
class Giver:
    """A member that gives, in one life of its node."""

    incarnation: int
    totals: Counter[str] = field(default_factory=Counter)
    max_accounts: int = 256

    def __post_init__(self) -> None:
        self._given = GivenService(
            lambda: self.totals, model="m", phases=WHOLE, max_accounts=self.max_accounts
        )

    def report(self, now_s: float) -> ServedElsewhere | None:
        report = self._given.report(now_s)
        if report is None:
            return None
        return ServedElsewhere(incarnation=self.incarnation, report=report)


@dataclass
class Hearer:
    """A member that hears, and what it was told to charge."""

    charged: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.others = OthersService(self._charge)

    def _charge(self, tenant: str, amount: float) -> None:
        assert amount > 0
        self.charged[tenant] += round(amount)

    def hear(self, served: ServedElsewhere | None, now_s: float = 0.0) -> None:
        if served is not None:
            self.others.hear(served, now_s)


def a_report(number: int, **amounts: float) -> ServedElsewhere:
    accounts = tuple(TenantService(tenant, 1, amount) for tenant, amount in amounts.items())
    report = ServiceReport(model="m", phases=WHOLE, number=number, accounts=accounts)
    return ServedElsewhere(incarnation=1, report=report)


def test_what_a_member_gives_is_charged_by_the_others() -> None:
    giver, hearer = Giver(1), Hearer()
    for second in range(5):
        giver.totals.update(acme=10, globex=second)
        hearer.hear(giver.report(second))
    assert hearer.charged == Counter(acme=50, globex=10)


def test_nothing_new_is_no_new_report() -> None:
    giver = Giver(1)
    assert giver.report(0) is None
    giver.totals.update(acme=1)
    first = giver.report(1)
    assert giver.report(2) == first
    giver.totals.update(acme=1)
    assert giver.report(2 + REPORT_INTERVAL_S / 2) == first, "before its time"
    second = giver.report(3)
    assert first is not None and second is not None
    assert (first.report.number, second.report.number) == (1, 2)


_TENANTS = st.sampled_from(["acme", "globex", "initech"])
_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("give"), st.integers(0, 1), _TENANTS, st.integers(1, 1000)),
        st.tuples(st.just("report"), st.integers(0, 1)),
        st.tuples(st.just("hear"), st.integers(0, 100)),
        st.tuples(st.just("restart"), st.integers(0, 1)),
    ),
    max_size=40,
)


@examples(10)
@given(_EVENTS)
def test_late_doubled_and_lost_reports_change_nothing_in_the_end(
    events: list[tuple[str, int] | tuple[str, int, str, int]],
) -> None:
    """Whatever the edges do: never more than was given, and all of it once the last reports are heard."""
    hearer = Hearer()
    lives = {0: 1, 1: 2}
    givers = {number: Giver(life) for number, life in lives.items()}
    past: Counter[str] = Counter()
    """Given in lives that are over."""
    said: list[ServedElsewhere] = []
    now_s = 0.0
    for event in events:
        now_s += REPORT_INTERVAL_S
        match event:
            case ("give", int(number), str(tenant), int(amount)):
                givers[number].totals[tenant] += amount
            case ("report", int(number)):
                if (report := givers[number].report(now_s)) is not None:
                    said.append(report)
            case ("hear", int(index)) if said:
                # by way of any edge, at any time, any number of times
                hearer.hear(said[index % len(said)], now_s)
            case ("restart", int(number)):
                last = givers[number].report(now_s)
                hearer.hear(last, now_s)
                past += givers[number].totals
                lives[number] += 2
                givers[number] = Giver(lives[number])
        given_in_all = past + givers[0].totals + givers[1].totals
        assert all(hearer.charged[tenant] <= given_in_all[tenant] for tenant in hearer.charged)
    for giver in givers.values():
        last = giver.report(now_s + 1)
        for _ in range(2):
            hearer.hear(last, now_s + 1)
    for report in reversed(said):
        hearer.hear(report, now_s + 1)
    assert hearer.charged == past + givers[0].totals + givers[1].totals


def test_with_more_tenants_than_accounts_what_is_not_told_of_yet_is_bounded() -> None:
    giver, hearer = Giver(1, max_accounts=4), Hearer()
    worst = 0
    for half_second in range(2400):
        for number in range(10):
            giver.totals[f"t{number}"] += 1 + number
        served = giver.report(half_second / 2)
        hearer.hear(served)
        worst = max(worst, *(giver.totals - hearer.charged).values(), 0)
        assert served is not None and len(served.report.accounts) <= 4
    # ten tenants take turns at four accounts, and none is given more than 20 in a second
    assert worst <= 3 * (OPEN_S + QUIET_S) * 20
    for half_second in range(2400, 3000):
        hearer.hear(giver.report(half_second / 2))
    assert hearer.charged == giver.totals, "all of it when they rest"


def test_a_tenant_that_returns_after_its_account_was_closed_is_charged_what_is_new() -> None:
    giver, hearer = Giver(1), Hearer()
    giver.totals.update(acme=10)
    hearer.hear(giver.report(0))
    for now_s in (QUIET_S, 2 * QUIET_S, 3 * QUIET_S):
        giver.totals.update(globex=1)
        hearer.hear(giver.report(now_s))
    giver.totals.update(acme=5)
    served = giver.report(4 * QUIET_S)
    hearer.hear(served)
    assert hearer.charged == Counter(acme=15, globex=3)
    assert served is not None
    assert {account.tenant: account.amount for account in served.report.accounts}["acme"] == 5


def test_a_total_that_was_forgotten_counts_from_nothing() -> None:
    giver, hearer = Giver(1), Hearer()
    giver.totals.update(acme=10)
    hearer.hear(giver.report(0))
    giver.totals = Counter(acme=4)
    hearer.hear(giver.report(1))
    assert hearer.charged == Counter(acme=14)


def test_the_past_of_a_member_that_was_long_at_work_is_not_charged() -> None:
    hearer = Hearer()
    hearer.hear(a_report(YOUNG_REPORTS + 1, acme=1000))
    assert not hearer.charged
    hearer.hear(a_report(YOUNG_REPORTS + 2, acme=1007))
    assert hearer.charged == Counter(acme=7)


def test_a_member_that_was_silent_for_long_is_forgotten() -> None:
    hearer = Hearer()
    hearer.hear(a_report(1, acme=1), now_s=0.0)
    other = replace(a_report(1, globex=1), incarnation=2)
    hearer.hear(other, now_s=FORGOTTEN_AFTER_S + 1)
    assert hearer.others.num_sources == 1


def test_no_more_members_are_kept_than_there_may_be() -> None:
    others = OthersService(lambda _tenant, _amount: None, max_sources=3)
    for incarnation in range(1, 20):
        others.hear(replace(a_report(1, acme=1), incarnation=incarnation), 0.0)
        assert others.num_sources <= 3


@pytest.mark.parametrize(
    ("model", "phases", "is_charged"),
    [
        ("m", ("prefill", "decode"), True),
        ("m", ("prefill",), True),
        ("m", ("decode",), False),
        ("other", ("prefill",), False),
    ],
)
def test_only_members_of_the_same_pool_count(
    model: str, phases: tuple[Phase, ...], is_charged: bool
) -> None:
    policy = VirtualCounters()
    exchange = ServiceExchange(policy, model="m", phases=("prefill",))
    served = a_report(1, acme=100)
    exchange.hear(replace(served, report=replace(served.report, model=model, phases=phases)), 0.0)
    assert policy.counter("acme") == (100 if is_charged else 0)


def test_who_was_served_by_another_member_comes_second() -> None:
    here, there = VirtualCounters(), VirtualCounters()
    hears = ServiceExchange(here, model="m", phases=WHOLE)
    tells = ServiceExchange(there, model="m", phases=WHOLE)
    there.enter("flooder", Share())
    there.queue("flooder")
    for tenant in ("flooder", "polite"):
        here.enter(tenant, Share())
        here.queue(tenant)
    there.charge("flooder", Service(input_tokens=1000))

    report = tells.report(0.0)
    assert report is not None
    hears.hear(ServedElsewhere(incarnation=7, report=report), 0.0)

    given = 0
    while here.order(["flooder", "polite"])[0] == "polite":
        here.charge("polite", Service(input_tokens=100))
        given += 100
    assert given == 1000
