"""Where a request has come, for operators who want to see it in its response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from tenantry_runtime.routing.member import MemberId
from tenantry_runtime.routing.placement import Placement

MEMBER_HEADER = "x-tenantry-member"
CACHED_HEADER = "x-tenantry-cached-tokens"

_SAFE = "/:@[]+"
"""What names of nodes and models have besides letters, digits, and `_.-~`."""


@dataclass(slots=True, eq=False)
class Trail:
    """What is known by now of one request."""

    placement: Placement | None = None
    """The latest."""
    cached_tokens: int | None = None
    limits: Mapping[str, str] = field(default_factory=dict)
    """Headers that say where the tenant stands."""

    def headers(self) -> dict[str, str]:
        """Return the headers for what is known."""
        fields: dict[str, str] = {}
        if self.placement is not None:
            members = {"prefill": self.placement.prefill, "decode": self.placement.decode}
            fields[MEMBER_HEADER] = " ".join(
                f"{phase}={_shown(member)}" for phase, member in members.items() if member
            )
        if self.cached_tokens is not None:
            fields[CACHED_HEADER] = str(self.cached_tokens)
        return fields


def _shown(member: MemberId) -> str:
    # a path may have what no header can
    return quote(f"{member.node}/{member.model}", safe=_SAFE)
