"""What is wrong with the books of a pool, page by page. O(pages)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from .ledger import PageLedger
from .pages import Lease, PageIndex, PageState, SharedPage, owner_of


def findings_of(
    *,
    ledger: PageLedger,
    free: Sequence[PageIndex],
    leases: Collection[Lease],
    draining: Sequence[Lease],
    shared: Mapping[PageIndex, SharedPage],
    quiescing: Sequence[PageIndex],
) -> list[str]:
    """Return every violation: each page in exactly one state, held as that and by those alone."""
    leased = _pages_of(leases)
    drained = _pages_of(draining)
    outside = [index for index in (*leased, *drained) if not 0 <= index < len(ledger)]
    if outside:
        return [f"pages {outside} are leased, of {len(ledger)} that exist", *ledger.audit()]
    private = [index for index in leased if index not in shared]
    waiting = [*quiescing, *(index for index in drained if index not in shared)]
    quarantined = [
        PageIndex(index)
        for index, state in enumerate(ledger.states)
        if state is PageState.QUARANTINED
    ]
    findings = [
        *_misplaced(ledger, free, PageState.FREE),
        *_misplaced(ledger, private, PageState.PRIVATE),
        *_misplaced(ledger, shared, PageState.SHARED),
        *_misplaced(ledger, waiting, PageState.QUIESCING),
    ]
    held = sorted([*free, *private, *shared, *waiting, *quarantined])
    if held != list(range(len(ledger))):
        findings.append(f"{len(ledger)} pages exist, but those held are {held}")
    findings.extend(
        f"page {ref.index} is leased with tag {ref.tag:#x} but has {ledger.tags[ref.index]:#x}"
        for lease in (*leases, *draining)
        for ref in lease.refs
        if ref.tag != ledger.tags[ref.index]
    )
    findings.extend(_misread(ledger, [*leases, *draining], shared))
    return [*findings, *ledger.audit()]


def _pages_of(leases: Iterable[Lease]) -> list[PageIndex]:
    return [PageIndex(index) for lease in leases for index in lease.indices]


def _misplaced(ledger: PageLedger, indices: Iterable[PageIndex], state: PageState) -> list[str]:
    return [
        f"page {index} is held as {state.name} but its state is {ledger.states[index].name}"
        for index in indices
        if ledger.states[index] is not state
    ]


def _misread(
    ledger: PageLedger, leases: Sequence[Lease], shared: Mapping[PageIndex, SharedPage]
) -> list[str]:
    num_leases = Counter(_pages_of(leases))
    findings = [
        f"page {index} has {num_leases[index]} readers, counted {page.num_readers}"
        for index, page in shared.items()
        if page.num_readers != num_leases[index]
    ]
    findings.extend(
        f"page {index} is shared with tag {page.ref.tag:#x} but has {ledger.tags[index]:#x}"
        for index, page in shared.items()
        if page.ref.tag != ledger.tags[index]
    )
    findings.extend(
        f"page {index} of owner {owner_of(shared[index].ref.tag)} is read by a lease "
        f"of owner {lease.owner}"
        for lease in leases
        for index in map(PageIndex, lease.indices)
        if index in shared and owner_of(shared[index].ref.tag) != lease.owner
    )
    return findings
