"""The pages of a node one by one, for whoever wants to see them: states and owners, never contents.

| call | kind | sent | received |
|---|---|---|---|
| /tenantry.Node/Pages | unary | empty | PageMaps |

A map is made by the step loop between two turns, O(pages), when somebody asks and not oftener than
`MIN_INTERVAL_S`; whoever asks meanwhile gets the last.

| byte of `states` | |
|---|---|
| 0 to 4 | free, private, shared, quiescing, quarantined |

| byte of `owners` | |
|---|---|
| 0 | nobody |
| 1 | public |
| 2 to 254 | `tenants[byte - 2]` |
| 255 | a tenant beyond those |
"""

from __future__ import annotations

import msgspec

from tenantry_runtime.core import Phase

MIN_INTERVAL_S = 1.0
STATES = ("free", "private", "shared", "quiescing", "quarantined")
NOBODY, PUBLIC, FIRST_TENANT, BEYOND = 0, 1, 2, 255
MAX_TENANTS = BEYOND - FIRST_TENANT


class PageMap(msgspec.Struct, frozen=True, kw_only=True):
    """Of one pool."""

    model: str
    phases: tuple[Phase, ...]
    states: bytes
    owners: bytes
    tenants: tuple[str, ...]


class AskPages(msgspec.Struct, frozen=True, kw_only=True, tag="ask_pages"):
    """The front asks the step loop for maps of its pools."""


class PageMaps(msgspec.Struct, frozen=True, kw_only=True, tag="page_maps"):
    """The maps of all pools of a node."""

    pools: tuple[PageMap, ...]
