"""The edge-node protocol: msgspec structs in MessagePack over gRPC streams (generic handlers).

| call | kind | sent | received |
|---|---|---|---|
| /tenantry.Node/Hello | unary | Hello | NodeDescription |
| /tenantry.Node/Work | bidirectional stream, one per edge | EdgeMessage | NodeMessage |
| /tenantry.Node/Statistics | unary | empty | NodeStatistics |

One `Step` carries the new tokens of all the edge's sequences. Unknown fields are ignored and the
version range is negotiated in `Hello`, so that a cluster can be upgraded node by node. Array-like
structs are on the per-token path: their fields are sent by position, and only ever appended to.
`wire.py` has their packed forms, `frames.py` what delimits them.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tenantry_runtime.core import FinishReason, Phase, Sampling

PROTOCOL_VERSION = 1
OLDEST_PROTOCOL_VERSION = 1

SERVICE = "tenantry.Node"


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """An edge introduces itself."""

    edge: str
    version: int = PROTOCOL_VERSION
    oldest_version: int = OLDEST_PROTOCOL_VERSION


class OpCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the check of pages covers one use of them, as found by trying (`engine.coverage`)."""

    op: str
    format: str
    """Of the rows."""
    device: str
    is_on: bool


class MemberDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What must agree between the members of a pairing, and what routing needs to know."""

    model: str
    phase: Phase
    weights_format: str
    cache_format: str
    page_tokens: int
    num_pages: int
    context_tokens: int
    """Prompt and answer together."""
    revision: str
    """SHA-256 that names the checkpoint (`models.checkpoint.Checkpoint.revision`)."""
    coverage: tuple[OpCoverage, ...] = ()
    """Of all that the member does with pages."""


class NodeDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A node's answer to `Hello`."""

    version: int
    incarnation: int
    """Differs after every restart: what an earlier life promised is void."""
    members: tuple[MemberDescription, ...]


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag="submit"):
    """Run one sequence: prefill, hand-off, decode."""

    request_id: str
    tenant: str
    model: str
    token_ids: list[int]
    sampling: Sampling
    stop_token_ids: tuple[int, ...]
    max_tokens: int
    """Already resolved by the edge: at least 1, and prompt + max_tokens fits the context."""
    session: str | None = None


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """Nobody waits for this sequence any more; unknown ids are ignored."""

    request_id: str


class Timings(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """When a sequence passed each stage, Unix time in nanoseconds; sent with its last tokens."""

    queued_ns: int
    prefill_started_ns: int
    first_token_ns: int
    finished_ns: int
    num_prefill_chunks: int


# array_like and gc=False: one of these per sequence and step, the hottest object between processes
class SequenceTokens(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """New tokens of one sequence. A stop token is counted and sent like any other."""

    request_id: str
    token_ids: tuple[int, ...]
    finish: FinishReason | None = None
    """STOP or LENGTH with the last tokens; the edge decides what is a tool call."""
    cached_tokens: int = 0
    """Prompt tokens that the prefill member did not compute; set with the first token."""
    timings: Timings | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True, tag="step", omit_defaults=True):
    """One step's tokens of all the edge's sequences."""

    step: int
    sequences: list[SequenceTokens]


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """One sequence ended without a finish; the others go on."""

    request_id: str
    reason: str
    """`capacity` (never ran; come back later), `context`, `cache_integrity` or `internal`."""
    message: str


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """A page that a step would have used was not as its sequence had it; nothing of it was told."""

    time_s: float
    """Unix time."""
    model: str
    request_id: str
    tenant: str
    step: int
    op: str
    """Of which use the check found it (`engine.incidents`)."""
    logical_page: int | None
    """Its place in the sequence."""
    page: int | None
    """Its place in the pool, as the sequence had it."""
    found: tuple[str, ...]
    """What did not agree: `index`, `tag`, `owner`, `fill`."""


class NodeStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A node's state at one moment."""

    loop_turn_ns: int
    """Unix time of the step loop's last turn: the sign of life."""
    num_running: int
    num_waiting: int
    num_free_pages: dict[str, int]
    """By model: free, or kept for later prompts as long as nobody else needs them."""
    num_incidents: int = 0
    """Since the start, of all models."""
    incidents: tuple[Incident, ...] = ()
    """The latest few."""
    num_quarantined_pages: dict[str, int] = {}
    """By model: nobody's until the node is idle and its audit finds nothing."""
    audit_findings: tuple[str, ...] = ()
    """Of the last audit, which runs when the node becomes idle."""


EdgeMessage: TypeAlias = Submit | Cancel
NodeMessage: TypeAlias = Step | Failed
