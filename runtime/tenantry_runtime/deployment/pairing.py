"""Why two members could not hand sequences from one to the other."""

from __future__ import annotations

from collections.abc import Mapping

from tenantry_runtime.cache.formats import CacheName

from .plan import Member, Node

CONVERSIONS: Mapping[CacheName, tuple[CacheName, ...]] = {
    "bf16": ("bf16", "fp8"),
    "fp8": ("fp8",),
    "float32": ("float32", "fp8"),
}
"""What pages of a prefill member's format can become on their way (`cache.ops.PageOps.wire`)."""


def pairing_problem(prefill: Member, decode: Member) -> str | None:
    """Return why pages of one could not become pages of the other; None if they can."""
    possible = CONVERSIONS[prefill.cache]
    if decode.cache in possible:
        return None
    formats = " or ".join(possible)
    return (
        f"{decode} keeps its pages in {decode.cache}, which pages in {prefill.cache} of {prefill} "
        f"({prefill.key}) cannot become; keep them in {formats} here"
    )


def reach_problem(prefill: Node, decode: Node) -> str | None:
    """Return why one node could not push pages to the other; None if it can."""
    if prefill is decode or prefill.is_local or not decode.is_local:
        return None
    return (
        f"{decode.name} is at {decode.address}, which its own machine alone reaches, and takes pages "
        f"from {prefill.name} at {prefill.address}; give {decode.key}.address a host and port that "
        f"{prefill.name} reaches"
    )
