"""Fairness across the members of a pool: what each has given its tenants, told to the others.

| where | what is kept | how much |
|---|---|---|
| `GivenService`, in the member that gives | an open account for each tenant that it has served lately | `MAX_ACCOUNTS`; what others are given meanwhile waits, for `MAX_UNSAID` of them, and is said with the next account that is free |
| `OthersService`, in those that hear of it | the latest report of each other member | `MAX_SOURCES` of them, none that has been silent for `FORGOTTEN_AFTER_S` |

A report has the sums of all open accounts, and a higher number than those before it: a later one says
all that an earlier one said, and the earlier one says nothing new. So reports may be doubled, late or
lost. No clocks are compared; pure, as the scheduler is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest

from msgspec.structs import replace

from tenantry_runtime.core import Phase
from tenantry_runtime.pool.messages import ServedElsewhere, ServiceReport, TenantService

from .policy import Policy

MAX_ACCOUNTS = 256
"""About as many as a batch has places: 10 KiB in a report."""

MAX_UNSAID = 4096
"""Tenants whose service waits for an account, those who were given most."""

REPORT_INTERVAL_S = 0.4
"""Between two reports with news: a little less than between two signs of life of a step loop, each of which
brings one."""

QUIET_S = 30.0
"""An account that has not changed for so long is closed. Edges ask every few seconds: many have said
by then what it held."""

OPEN_S = 30.0
"""Where tenants wait for an account, one that has been open for so long changes no more, and so is closed
soon: nobody waits much longer than both times together."""

YOUNG_REPORTS = 20
"""The first reports of a member, of some ten seconds in which it was at work, are heard as all that it
has given. Of a later one that comes out of nowhere nobody can say how much of it is long past."""

MAX_SOURCES = 1024
FORGOTTEN_AFTER_S = 3600.0


@dataclass(slots=True, eq=False)
class _Account:
    opened: int
    opened_s: float
    changed_s: float
    amount: float = 0


class GivenService:
    """What one page pool's policy has charged its tenants, made into reports."""

    def __init__(
        self,
        totals: Callable[[], Mapping[str, float]],
        *,
        model: str,
        phases: tuple[Phase, ...],
        max_accounts: int = MAX_ACCOUNTS,
    ) -> None:
        """`totals` returns sums that only grow, by tenant; it may forget one, which then starts at 0."""
        self._totals = totals
        self._max_accounts = max_accounts
        self._seen: dict[str, float] = {}
        self._unsaid: dict[str, float] = {}
        self._accounts: dict[str, _Account] = {}
        self._report = ServiceReport(model=model, phases=phases, number=0, accounts=())
        self._written_s: float | None = None

    def report(self, now_s: float) -> ServiceReport | None:
        """Return the latest report, a new one where it is time for it; None before the first.

        O(tenants that `totals` knows), once every `REPORT_INTERVAL_S`.
        """
        written_s = self._written_s
        # a clock that is set back is no reason to say nothing
        if written_s is None or not 0 <= now_s - written_s < REPORT_INTERVAL_S:
            self._written_s = now_s
            self._count()
            self._write(now_s)
        return self._report if self._report.number else None

    def _count(self) -> None:
        totals = dict(self._totals())
        for tenant, total in totals.items():
            before = self._seen.get(tenant, 0)
            gained = total - before if total >= before else total
            if gained:
                self._unsaid[tenant] = self._unsaid.get(tenant, 0) + gained
        self._seen = totals
        if len(self._unsaid) > MAX_UNSAID:
            self._unsaid = dict(nlargest(MAX_UNSAID, self._unsaid.items(), key=_amount))

    def _write(self, now_s: float) -> None:
        """Bring the accounts up to date, and report them if one has changed."""
        number = self._report.number + 1
        for known in [
            tenant
            for tenant, account in self._accounts.items()
            if now_s - account.changed_s > QUIET_S
        ]:
            del self._accounts[known]
        is_crowded = len(self._accounts.keys() | self._unsaid.keys()) > self._max_accounts
        has_changed = False
        # what makes most difference is said first
        for tenant, amount in sorted(self._unsaid.items(), key=_amount, reverse=True):
            account = self._account_of(tenant, number, now_s)
            if account is None or (is_crowded and now_s - account.opened_s > OPEN_S):
                continue
            account.amount += amount
            account.changed_s = now_s
            del self._unsaid[tenant]
            has_changed = True
        if has_changed:
            self._report = replace(self._report, number=number, accounts=self._entries())

    def _account_of(self, tenant: str, number: int, now_s: float) -> _Account | None:
        """Return the tenant's account, a new one if there is room for it."""
        account = self._accounts.get(tenant)
        if account is None and len(self._accounts) < self._max_accounts:
            account = _Account(opened=number, opened_s=now_s, changed_s=now_s)
            self._accounts[tenant] = account
        return account

    def _entries(self) -> tuple[TenantService, ...]:
        return tuple(
            TenantService(tenant, account.opened, account.amount)
            for tenant, account in self._accounts.items()
        )


def _amount(each: tuple[str, float]) -> float:
    return each[1]


@dataclass(slots=True, eq=False)
class _Source:
    number: int = 0
    accounts: dict[str, TenantService] = field(default_factory=dict)
    heard_s: float = 0.0


class OthersService:
    """What other members have reported, and has been charged."""

    def __init__(
        self, charge: Callable[[str, float], None], *, max_sources: int = MAX_SOURCES
    ) -> None:
        self._charge = charge
        self._max_sources = max_sources
        self._sources: dict[tuple[int, tuple[Phase, ...]], _Source] = {}
        """The one that was heard last comes last."""

    @property
    def num_sources(self) -> int:
        return len(self._sources)

    def hear(self, served: ServedElsewhere, now_s: float) -> None:
        """Charge what is new in a report."""
        report = served.report
        key = (served.incarnation, report.phases)
        source = self._sources.pop(key, None)
        self._forget(now_s)
        is_known = source is not None
        source = self._sources[key] = source or _Source()
        source.heard_s = now_s
        if report.number <= source.number:
            return
        if is_known or report.number <= YOUNG_REPORTS:
            for account in report.accounts:
                gained = account.amount - _said_before(source, account)
                if gained > 0:
                    self._charge(account.tenant, gained)
        source.number = report.number
        source.accounts = {account.tenant: account for account in report.accounts}

    def _forget(self, now_s: float) -> None:
        """Drop who has been silent for long, and make room for one."""
        for key, source in list(self._sources.items()):
            is_silent = now_s - source.heard_s > FORGOTTEN_AFTER_S
            if not is_silent and len(self._sources) < self._max_sources:
                return
            del self._sources[key]


def _said_before(source: _Source, account: TenantService) -> float:
    """Return how much of an account has been heard of."""
    known = source.accounts.get(account.tenant)
    return known.amount if known is not None and known.opened == account.opened else 0


class ServiceExchange:
    """Both sides, for one page pool."""

    def __init__(self, policy: Policy, *, model: str, phases: tuple[Phase, ...]) -> None:
        self._model = model
        self._phases = frozenset(phases)
        self._given = GivenService(policy.totals, model=model, phases=phases)
        self._others = OthersService(policy.charge_elsewhere)

    def report(self, now_s: float) -> ServiceReport | None:
        """Return what to tell the other members, as `GivenService.report` does."""
        return self._given.report(now_s)

    def hear(self, served: ServedElsewhere, now_s: float) -> None:
        """Take account of a report, if it is of the same model and a phase of this pool."""
        report = served.report
        if report.model == self._model and not self._phases.isdisjoint(report.phases):
            self._others.hear(served, now_s)
