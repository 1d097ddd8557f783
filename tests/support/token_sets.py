"""Grammars that allow a set of tokens, over vocabularies of any size."""

from __future__ import annotations

from collections.abc import Collection

from tenantry_runtime.engine.guide import Guide
from tenantry_runtime.text.matching import Matching

STOP = 1


def a_small_matching(vocab_size: int) -> Matching:
    """Take tokens that are numbers in brackets; one ends the answer."""
    return Matching.of(vocab_size, lambda i: f"({i})".encode(), {STOP: "<stop>"}, {STOP})


def a_guide(allowed: Collection[int], vocab_size: int) -> Guide:
    """Make a guide that lets one of these come, then the stop token."""
    either = ",".join(map(str, sorted(allowed)))
    return Guide(a_small_matching(vocab_size).compiled(f"start: <[{either}]>"), vocab_size)


def a_broken_guide(vocab_size: int) -> Guide:
    """Make a guide that has been told of a token that its grammar does not have."""
    guide = a_guide({2}, vocab_size)
    guide.advance(3)
    return guide
