"""How messages travel: their packed forms, what front and step loop say to each other, the codecs.

Token ids of a prompt are packed as little-endian uint32, so that the front passes them on without
looking at them.
"""

from __future__ import annotations

import sys
from array import array
from typing import TypeAlias

import msgspec

from tenantry_runtime.core import Sampling, Share

from .loop_log import Logged
from .messages import (
    Cancel,
    Constraint,
    Deliver,
    Delivered,
    Failed,
    Hello,
    MemberDescription,
    NodeDescription,
    NodeMessage,
    NodeStatistics,
    Part,
    Preempted,
    PrefixChanges,
    Reserved,
    ServedElsewhere,
    Started,
    Step,
    Submit,
)
from .page_map import AskPages, PageMaps
from .page_messages import PageCommand, PageReport

TOKEN_ID_BYTES = 4


class PackedSubmit(msgspec.Struct, frozen=True, kw_only=True, tag="submit"):
    """`Submit` on its way, from edge to front and from front to step loop."""

    request_id: str
    tenant: str
    model: str
    token_ids: bytes
    sampling: Sampling
    stop_token_ids: tuple[int, ...]
    max_tokens: int
    session: str | None = None
    part: Part = "whole"
    share: Share = Share()
    may_wait: bool = True
    max_waiting: int | None = None
    first_token_within_ms: int | None = None
    constraint: Constraint | None = None
    num_generated: int = 0
    is_background: bool = False
    traceparent: str = ""


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The step loop has loaded its members and takes work."""

    members: tuple[MemberDescription, ...]


class Unusable(msgspec.Struct, frozen=True, kw_only=True, tag="unusable"):
    """The step loop cannot be built from its configuration; it exits."""

    problem: str


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, tag="heartbeat"):
    """The step loop turns; sent by the loop itself, at a bounded rate."""

    statistics: NodeStatistics


WorkMessage: TypeAlias = PackedSubmit | Deliver | Cancel | ServedElsewhere
"""`EdgeMessage` in its packed form."""
SequenceReport: TypeAlias = Failed | Started | Reserved | Delivered | Preempted
"""What a node says of one sequence, its tokens aside."""
LoopCommand: TypeAlias = WorkMessage | AskPages | PageCommand
"""What the front tells the step loop."""
LoopReport: TypeAlias = (
    Step
    | SequenceReport
    | PrefixChanges
    | Ready
    | Unusable
    | Heartbeat
    | Logged
    | PageMaps
    | PageReport
)
"""What the step loop tells the front."""

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode

decode_work = msgspec.msgpack.Decoder(WorkMessage).decode
decode_command = msgspec.msgpack.Decoder(LoopCommand).decode
decode_report = msgspec.msgpack.Decoder(LoopReport).decode
decode_node_message = msgspec.msgpack.Decoder(NodeMessage).decode
decode_hello = msgspec.msgpack.Decoder(Hello).decode
decode_description = msgspec.msgpack.Decoder(NodeDescription).decode
decode_page_maps = msgspec.msgpack.Decoder(PageMaps).decode
decode_statistics = msgspec.msgpack.Decoder(NodeStatistics).decode


def pack(submit: Submit) -> PackedSubmit:
    return PackedSubmit(
        request_id=submit.request_id,
        tenant=submit.tenant,
        model=submit.model,
        token_ids=_little_endian(array("I", submit.token_ids)).tobytes(),
        sampling=submit.sampling,
        stop_token_ids=submit.stop_token_ids,
        max_tokens=submit.max_tokens,
        session=submit.session,
        part=submit.part,
        share=submit.share,
        may_wait=submit.may_wait,
        max_waiting=submit.max_waiting,
        first_token_within_ms=submit.first_token_within_ms,
        constraint=submit.constraint,
        num_generated=submit.num_generated,
        is_background=submit.is_background,
        traceparent=submit.traceparent,
    )


def unpack(packed: PackedSubmit) -> Submit:
    """Raise `ValueError` when the packed ids are no whole number of ids."""
    return Submit(
        request_id=packed.request_id,
        tenant=packed.tenant,
        model=packed.model,
        token_ids=_little_endian(array("I", packed.token_ids)).tolist(),
        sampling=packed.sampling,
        stop_token_ids=packed.stop_token_ids,
        max_tokens=packed.max_tokens,
        session=packed.session,
        part=packed.part,
        share=packed.share,
        may_wait=packed.may_wait,
        max_waiting=packed.max_waiting,
        first_token_within_ms=packed.first_token_within_ms,
        constraint=packed.constraint,
        num_generated=packed.num_generated,
        is_background=packed.is_background,
        traceparent=packed.traceparent,
    )


def _little_endian(ids: array[int]) -> array[int]:
    """Swap the bytes of each id where the machine's order differs from the wire's; its own inverse."""
    assert ids.itemsize == TOKEN_ID_BYTES
    if sys.byteorder == "big":
        ids.byteswap()
    return ids
