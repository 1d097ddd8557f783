"""Whether servers compute the same: how long their greedy answers to one prompt are alike.

In BF16 no two engines round alike, and random weights have many near ties: answers part after some
tokens, never to meet again. An engine that computes something else parts from the first token on.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_recipes.bench.stream_client import StreamedAnswer

NUM_COMPARED_CHARS = 8
"""About two tokens."""

LEAST_SAME_START = 0.2
"""Engines that compute the same reach more than half; those that do not, a few percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Of one server's answers with another's."""

    same_start: float
    """Share of answers whose first `NUM_COMPARED_CHARS` characters are the same."""
    num_tokens: float
    """How many tokens are the same before the first difference, on average."""

    @classmethod
    def of(cls, mine: Sequence[StreamedAnswer], theirs: Sequence[StreamedAnswer]) -> Agreement:
        """Compare answers to the same prompts, in the same order."""
        pairs = list(zip(mine, theirs, strict=True))
        return cls(
            same_start=statistics.mean(
                a.text[:NUM_COMPARED_CHARS] == b.text[:NUM_COMPARED_CHARS] for a, b in pairs
            ),
            num_tokens=statistics.mean(_num_same_tokens(a, b) for a, b in pairs),
        )


def check_agreement(
    engine: str, mine: Sequence[StreamedAnswer], theirs: Sequence[StreamedAnswer]
) -> None:
    """Raise `BenchmarkError` if `engine`, whose answers are `theirs`, does other work."""
    same_start = Agreement.of(mine, theirs).same_start
    if same_start < LEAST_SAME_START:
        raise BenchmarkError(
            f"{engine}: {same_start:.0%} of its answers begin as this runtime's do, expected at "
            f"least {LEAST_SAME_START:.0%}: it does not compute the same"
        )


def _num_same_tokens(mine: StreamedAnswer, theirs: StreamedAnswer) -> float:
    # texts are all that comes back: tokens are taken to be of equal length
    num_same = _num_true(a == b for a, b in zip(mine.text, theirs.text, strict=False))
    return num_same / len(mine.text) * mine.completion_tokens


def _num_true(leading: Iterable[bool]) -> int:
    return sum(takewhile(bool, leading))
