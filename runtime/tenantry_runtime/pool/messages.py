"""The edge-node protocol: msgspec structs in MessagePack over gRPC streams (generic handlers).

| call | kind | sent | received |
|---|---|---|---|
| /tenantry.Node/Hello | unary | Hello | NodeDescription |
| /tenantry.Node/Work | bidirectional stream, one per edge | EdgeMessage | NodeMessage |
| /tenantry.Node/Push | bidirectional stream, one per hand-off, from node to node | PushOpen, pages, HandoffEnd | credits, the outcome |
| /tenantry.Node/Statistics | unary | empty | NodeStatistics |
| /tenantry.Node/Pages | unary | empty | `page_map.PageMaps` |
| /tenantry.Node/Drain | unary | empty | empty; the node ends what runs and takes nothing new |

A sequence whose two phases run on different members takes these steps; R is the edge's request:

| # | from | to | message |
|---|---|---|---|
| 1 | edge | prefill node | Submit(R, part="prefill") |
| 2 | prefill node | edge | Started(R), when its first chunk is planned |
| 3 | edge | decode node | Submit(R, part="decode") |
| 4 | decode node | edge | Reserved(R, target), when its pages are free |
| 5 | edge | prefill node | Deliver(R, address, target) |
| 6 | prefill node | decode node | Push: the target's pages chunk by chunk, then HandoffEnd |
| 7 | prefill node | edge | Delivered(R) |
| 8 | decode node | edge | SequenceTokens of R, the first token's included |

A decode node that needs a sequence's pages says Preempted(R): the edge submits it again, with what
was said so far as part of the prompt.

What a member gives its tenants reaches the other members of its pool by way of the edges, so that a
tenant's turn does not depend on which of them it asks:

| # | from | to | message |
|---|---|---|---|
| 1 | node | every edge that asks for its statistics | a ServiceReport for each page pool |
| 2 | edge | every other node with a member of the same model and phase | ServedElsewhere, once for each report that is new to the edge |

Every report says all that the ones before it said, and is known by the node's incarnation and a
number: it may come twice, by way of several edges, late or not at all.

One `Step` carries the new tokens of all the edge's sequences. Unknown fields are ignored and the
version range is negotiated in `Hello`, so that a cluster can be upgraded node by node. Array-like
structs are on the per-token path, or come in numbers: their fields are sent by position, and only ever
appended to. A message of a kind that the older side does not know is not sent to it:

| version | has |
|---|---|
| 1 | all but what follows |
| 2 | ServedElsewhere |

`wire.py` has their packed forms, `frames.py` what delimits them.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from tenantry_runtime.core import ChosenLogprob, FinishReason, Phase, Sampling, Share
from tenantry_runtime.traceparent import span_ids

from .pool_report import PoolReport

PROTOCOL_VERSION = 2
OLDEST_PROTOCOL_VERSION = 1
SERVICE_EXCHANGE_VERSION = 2
"""From which on a node takes `ServedElsewhere`."""

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
    source_revision: str = ""
    """Of the checkpoint that this one was converted from; its own where it was not converted."""
    recipe: str = ""
    """How it was converted; empty where it was not."""
    tokenizer_digest: str = ""
    template_digest: str = ""
    page_layout: str = ""
    """What a page is on the wire in the member's own cache format (`cache/wire_pages.py`)."""


class NodeDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A node's answer to `Hello`."""

    version: int
    incarnation: int
    """Differs after every restart: what an earlier life promised is void."""
    members: tuple[MemberDescription, ...]
    address: str = ""
    """As other nodes reach it; empty: as edges do."""


Part: TypeAlias = Literal["whole", "prefill", "decode"]
"""What of a sequence a node is to run: both phases, on members of its own, or one."""


_IN_THE_BACKGROUND = " in the background"
"""No id of a tenant has a space."""


def party_of(tenant: str, *, is_background: bool) -> str:
    """Return whom a pool's pages, places and turns are given to.

    A tenant's work in the background is to a pool as if another tenant's: it takes nothing of the
    tenant's own share, and does not count when that is measured.
    """
    return tenant + _IN_THE_BACKGROUND if is_background else tenant


def is_background(party: str) -> bool:
    return party.endswith(_IN_THE_BACKGROUND)


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """What the generated tokens have to fit."""

    lark: str
    """A grammar of whole answers, in llguidance's form of Lark: from the first token that is generated."""


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
    part: Part = "whole"
    share: Share = Share()
    """What the tenant has of the pool."""
    may_wait: bool = True
    """False: fail with `capacity` rather than wait for a turn."""
    max_waiting: int | None = None
    """Sequences of the tenant that may wait at one time, this one among them; None: as the pool has it."""
    first_token_within_ms: Annotated[int, Meta(ge=0)] | None = None
    """Of its arrival at the node, whose clock need not be the edge's. A sequence that has no token by
    then fails with `deadline`; None: it may take any time, or the client has its first token."""
    constraint: Constraint | None = None
    num_generated: int = 0
    """How many of `token_ids`, at their end, were generated before: they are no part of the prompt."""
    is_background: bool = False
    """It has what no other sequence of the pool wants, and gives it back as soon as one does."""
    traceparent: str = ""
    """The request's span, as W3C has it; empty: nobody traces it."""

    @property
    def party(self) -> str:
        return party_of(self.tenant, is_background=self.is_background)

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits; empty: nobody traces it."""
        ids = span_ids(self.traceparent)
        return "" if ids is None else ids.trace_id


class HandoffTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Pages that a decode member has reserved for one hand-off."""

    model: str
    incarnation: int
    """Of the receiving node: what an earlier life reserved is void. 0 until its front fills it in."""
    handoff: int
    """Names the reservation in that life of the node."""
    cache_format: str
    """Of the pages as they are pushed."""
    first_page: int
    """Logical pages before it are there already, in the decode member's prefix tree."""
    pages: bytes
    """From `first_page` on: (index, tag) of each, little-endian int64 pairs."""


HERE = ""
"""The address of a node's own members, in what its front tells its step loop."""


class Deliver(msgspec.Struct, frozen=True, kw_only=True, tag="deliver"):
    """Where a sequence that is being prefilled goes."""

    request_id: str
    address: str
    """Of the decode node, as other nodes reach it."""
    target: HandoffTarget


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
    # older nodes leave out all that follows
    handoff_started_ns: int = 0
    """When the way to the decode member was opened; 0: no pages crossed from pool to pool."""
    handoff_ended_ns: int = 0
    """When all of them were written and verified, on the decode node's clock."""
    num_handoff_pages: int = 0
    num_handoff_bytes: int = 0
    """0, though there are pages: they stayed where they are, and changed hands."""
    num_preemptions: int = 0
    """After which it went on on the same node."""
    num_steps: int = 0
    """That the decode member took while this sequence was with it."""
    num_step_rows: int = 0
    """Sequences of those steps, added up: over `num_steps`, the mean batch."""
    beside: tuple[str, ...] = ()
    """`traceparent` of some that shared its last step, of those whose traces are kept."""


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
    logprobs: tuple[ChosenLogprob, ...] = ()
    """Of each of the tokens, where the request asks for them."""


class Step(msgspec.Struct, frozen=True, kw_only=True, tag="step", omit_defaults=True):
    """One step's tokens of all the edge's sequences."""

    step: int
    sequences: list[SequenceTokens]


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """One sequence ended without a finish; the others go on."""

    request_id: str
    reason: str
    """`capacity` (never ran; come back later), `context`, `cache_integrity`, `handoff`, `deadline` (it had
    no token in time) or `internal`."""
    message: str
    is_cut_off: bool = False
    """It failed because the node ends, or its step loop has."""


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """A prompt has left the prefill queue: it is time to reserve pages for it."""

    request_id: str
    cached_tokens: int | None = None
    """Prompt tokens that need not be computed. What is said first of a request is what it is billed
    by, also when it has to be tried again. None: not said here."""


class Reserved(msgspec.Struct, frozen=True, kw_only=True, tag="reserved"):
    """A decode member has pages for the sequence, for as long as it is not canceled."""

    request_id: str
    target: HandoffTarget


class Delivered(msgspec.Struct, frozen=True, kw_only=True, tag="delivered"):
    """The prefill member has handed everything over; it says no more of the sequence."""

    request_id: str


class Preempted(msgspec.Struct, frozen=True, kw_only=True, tag="preempted"):
    """The sequence's pages were needed for others. It is to be submitted again, with its output."""

    request_id: str


class PrefixChanges(msgspec.Struct, frozen=True, kw_only=True, tag="prefixes"):
    """Pages that came into or went out of a member's prefix trees, for routing."""

    model: str
    phase: Phase
    added: bytes
    """Keys of pages, little-endian uint64 each (`cache.prefix_keys.page_keys`)."""
    removed: bytes
    is_whole: bool = False
    """`added` is all there is: what was known before is void."""


class PageHeader(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What precedes a pushed page's bytes."""

    handoff: int
    logical_page: int
    index: int
    tag: int
    num_tokens: int
    digest: int
    """Of the bytes, bound to hand-off, logical page, layer group and tag."""
    num_bytes: int


class HandoffEnd(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """All pages are pushed; what else the decode member must know to go on."""

    handoff: int
    num_pages: int
    """Pushed in all."""
    first_token: int
    cached_tokens: int = 0
    """Prompt tokens that the prefill member did not compute: what the request is billed by."""
    queued_ns: int
    prefill_started_ns: int
    first_token_ns: int
    num_prefill_chunks: int
    first_logprob: ChosenLogprob | None = None
    """Of the first token, where the request asks for it."""
    opened_ns: int = 0
    """When its way was opened; 0: an older node does not say."""
    num_bytes: int = 0
    """Of the pages on the wire."""


class LentMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Slots of a process of the same machine, for a peer to read pages from (`pool.lent_pages`)."""

    pid: int
    fd: int
    """Of the file in that process."""
    device: int
    inode: int
    """Which file that is."""
    slot_bytes: int
    num_slots: int


class PushOpen(msgspec.Struct, frozen=True, kw_only=True, tag="push"):
    """A prefill node introduces a hand-off to the node that reserved pages for it."""

    target: HandoffTarget
    source: MemberDescription
    """The prefill member; what must agree is compared with the decode member's."""
    memory: LentMemory | None = None
    """What the receiver may read pages from; None: they are in the frames."""


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
    trace_id: str = ""
    """32 hexadecimal digits; empty: nobody traces the request, or the node is older."""


# array_like and gc=False: some hundred of these in each report
class TenantService(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An account of what one tenant was given lately."""

    tenant: str
    opened: int
    """Number of the first report that has it. One that rested is closed; the next begins anew at 0."""
    amount: Annotated[float, Meta(ge=0)]
    """Since then, as the policy counts (`engine.policy`)."""


class ServiceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the members of one page pool have given."""

    model: str
    phases: tuple[Phase, ...]
    """Of the members: service is counted for the pages that they share."""
    number: int
    """1, 2, ... in the life of the node; the same as before where nothing was given."""
    accounts: tuple[TenantService, ...]
    """All that are open."""


class ServedElsewhere(msgspec.Struct, frozen=True, kw_only=True, tag="served"):
    """What a member of the node's pools has given on another node."""

    incarnation: int
    """Of the other node: names it, by whatever address an edge may know it."""
    report: ServiceReport


class MemberLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What routing needs to know of one member."""

    model: str
    phase: Phase
    num_free_pages: int
    """Free, or evictable from prefix trees."""
    num_reserved_growth_pages: int
    """Pages that its sequences may still grow by."""
    num_queued_tokens: int
    """Prompt tokens that wait or are being computed."""
    num_sequences: int


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
    """The latest of each page pool, as many as a node keeps: edges bring them into the store."""
    num_quarantined_pages: dict[str, int] = {}
    """By model: nobody's until the node is idle and its audit finds nothing."""
    loads: tuple[MemberLoad, ...] = ()
    is_draining: bool = False
    """It finishes what it has and takes nothing new."""
    audit_findings: tuple[str, ...] = ()
    """Of the last audit, which runs when the node becomes idle."""
    incarnation: int = 0
    """As in `NodeDescription`; 0 until the front fills it in."""
    services: tuple[ServiceReport, ...] = ()
    """Of each page pool that has served anyone."""
    pools: tuple[PoolReport, ...] = ()


EdgeMessage: TypeAlias = Submit | Deliver | Cancel | ServedElsewhere
NodeMessage: TypeAlias = Step | Failed | Started | Reserved | Delivered | Preempted | PrefixChanges
