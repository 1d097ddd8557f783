"""Where a request has come, for operators who want to see it in its response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from urllib.parse import quote

import anyio

from tenantry_runtime.core import TenantId
from tenantry_runtime.routing.member import MemberId
from tenantry_runtime.routing.placement import Placement
from tenantry_runtime.telemetry import Journey
from tenantry_runtime.tenancy import Interruption

MEMBER_HEADER = "x-tenantry-member"
CACHED_HEADER = "x-tenantry-cached-tokens"

_SAFE = "/:@[]+"
"""What names of nodes and models have besides letters, digits, and `_.-~`."""


@dataclass(slots=True, eq=False)
class Trail:
    """What is known by now of one request."""

    tenant: TenantId | None = None
    """None: nobody knows who asks."""
    placement: Placement | None = None
    """The latest."""
    cached_tokens: int | None = None
    limits: Callable[[], Mapping[str, str]] = dict
    """Headers that say where the tenant stands, when they are asked for."""
    admission: anyio.CancelScope | None = None
    """What the edge cancels when it ends."""
    deadline: anyio.CancelScope | None = None
    """What cancels it when it takes too long."""
    is_whole: bool = False
    """Whether the whole answer is there, and is only to be recorded and sent."""
    journeys: list[Journey] = field(default_factory=list)
    """Of its sequences, one for each answer."""

    def begin(self, num_sequences: int) -> None:
        """Follow so many sequences from here on."""
        self.journeys = [Journey() for _ in range(num_sequences)]

    def become_whole(self) -> None:
        """Let nothing but its client's departure keep the answer from it any more."""
        self.is_whole = True
        if self.deadline is not None:
            self.deadline.deadline = inf

    def interruption(self) -> Interruption:
        """Say why the request has been canceled. What is our doing is charged to nobody else."""
        if self.admission is not None and self.admission.cancel_called:
            return Interruption.EDGE_CLOSING
        if self.deadline is not None and self.deadline.cancel_called:
            return Interruption.TIMEOUT
        return Interruption.CLIENT_GONE

    def headers(self) -> dict[str, str]:
        """Return the headers for what is known."""
        fields: dict[str, str] = {}
        if self.placement is not None:
            members = {"prefill": self.placement.prefill, "decode": self.placement.decode}
            fields[MEMBER_HEADER] = " ".join(
                f"{phase}={shown(member)}" for phase, member in members.items() if member
            )
        if self.cached_tokens is not None:
            fields[CACHED_HEADER] = str(self.cached_tokens)
        return fields


def shown(member: MemberId) -> str:
    """Return what names a member in headers and traces."""
    # a path may have what no header can
    return quote(f"{member.node}/{member.model}", safe=_SAFE)
