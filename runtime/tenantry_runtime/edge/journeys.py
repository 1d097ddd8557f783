"""What is noted of a sequence's way for its trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from tenantry_runtime.core import Phase
from tenantry_runtime.errors import CacheIntegrityError
from tenantry_runtime.pool.messages import HandoffTarget, MemberDescription
from tenantry_runtime.routing.member import MemberId
from tenantry_runtime.routing.placement import Placement
from tenantry_runtime.telemetry import Journey, MemberTold, names

from .trail import shown

Noted: TypeAlias = dict[str, str | int | float | bool]


def meet(journey: Journey, placement: Placement) -> None:
    """Note the members that an attempt has by now."""
    ids = {"prefill": placement.prefill, "decode": placement.decode}
    journey.members = {
        phase: _told(member, description)
        for phase, description in placement.serving.items()
        if (member := ids[phase]) is not None
    }


@contextmanager
def routing(journey: Journey, phase: Phase) -> Iterator[None]:
    with journey.stage("route", {names.ROUTE_PHASE: phase}):
        yield


@contextmanager
def reserving(journey: Journey) -> Iterator[Noted]:
    """Note how long a decode member takes to have pages; it may fail."""
    noted: Noted = {}
    if told := journey.members.get("decode"):
        noted[names.DECODE_MEMBER] = told.name
    with journey.stage("reserve", noted):
        yield noted


def reserved(noted: Noted, target: HandoffTarget) -> None:
    # 16 bytes name a page
    noted[names.RESERVED_PAGES] = len(target.pages) // 16
    noted[names.RESERVED_PRESENT_PAGES] = target.first_page


def retried(journey: Journey, error: Exception, failed: Iterable[MemberId]) -> None:
    """The request is tried once more, elsewhere."""
    journey.num_retries += 1
    members = " ".join(shown(member) for member in failed)
    attributes = {names.ERROR_TYPE: type(error).__name__, names.RETRY_MEMBERS: members}
    journey.event(names.RETRY_EVENT, attributes)


def failed(journey: Journey, error: Exception) -> None:
    """An attempt has ended with an error, whatever comes of that."""
    journey.has_mismatch = journey.has_mismatch or isinstance(error, CacheIntegrityError)


def preempted(journey: Journey, num_output: int) -> None:
    """Its pages were needed for others, and it is submitted again."""
    journey.num_resubmitted += 1
    journey.event(names.PREEMPTED_EVENT, {names.OUTPUT_TOKENS_SO_FAR: num_output})


def _told(member: MemberId, description: MemberDescription) -> MemberTold:
    coverage = description.coverage
    return MemberTold(
        name=shown(member),
        weights_format=description.weights_format,
        cache_format=description.cache_format,
        is_checked=bool(coverage) and all(each.is_on for each in coverage),
    )
