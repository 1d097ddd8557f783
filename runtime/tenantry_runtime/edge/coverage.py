"""`GET …/ai/coverage`: which uses of cache pages are checked, on the nodes that this edge knows."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenantry_runtime.core import Phase
from tenantry_runtime.errors import NodeUnavailable
from tenantry_runtime.pool.interface import TokenSource
from tenantry_runtime.pool.messages import MemberDescription
from tenantry_runtime.tenancy import Scope

from . import envelope
from .authorization import by_token
from .reply import JSON
from .services import Services

UNREPORTED = "every op"
"""The op of a member that says nothing of its ops: none of them counts as checked."""


class CoveredOp(msgspec.Struct, frozen=True, kw_only=True):
    """One use of pages by one member."""

    node: int
    """Its place among the edge's nodes."""
    model: str
    phase: Phase
    op: str
    format: str
    device: str
    checked: bool


class CoverageOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes have found by trying."""

    all_checked: bool
    """Every op of every member, and every node has said so."""
    nodes_without_answer: int
    ops: list[CoveredOp]


async def report_coverage(request: Request, services: Services) -> Response:
    """Say of every op whether the check is on."""
    await by_token(services.authenticator, Scope.RUN)(request)
    ops: list[CoveredOp] = []
    num_silent = 0
    for number, node in enumerate(services.nodes.all):
        covered = list(_of_node(number, node))
        num_silent += not covered
        ops += covered
    is_whole = bool(ops) and not num_silent and all(op.checked for op in ops)
    output = CoverageOutput(all_checked=is_whole, nodes_without_answer=num_silent, ops=ops)
    return Response(envelope.success(output), headers=JSON)


def _of_node(number: int, node: TokenSource) -> Iterator[CoveredOp]:
    try:
        members = node.description.members if node.is_healthy else ()
    except NodeUnavailable:
        return
    for member in members:
        yield from _of_member(number, member)


def _of_member(number: int, member: MemberDescription) -> Iterator[CoveredOp]:
    rows = [(row.op, row.format, row.device, row.is_on) for row in member.coverage]
    for op, rows_format, device, is_on in rows or [(UNREPORTED, member.cache_format, "-", False)]:
        yield CoveredOp(
            node=number,
            model=member.model,
            phase=member.phase,
            op=op,
            format=rows_format,
            device=device,
            checked=is_on,
        )
