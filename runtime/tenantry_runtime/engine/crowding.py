"""Who leaves a full queue for whom: it is shared as what it waits for is, by weight.

Without that a queue would be whoever's fills it first, and the order in it would be no help to those
who are refused at its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .sequence import Sequence, Waiting


def gives_way(live: Iterable[Sequence], newcomer: Sequence) -> Sequence | None:
    """Return the last to come of the tenant that has most waiting for its weight.

    None where no tenant has more than the newcomer's own would with it: then it is the newcomer that
    there is no room for. What has been let in elsewhere, or had its turn before, stays. O(live).
    """
    if newcomer.submit.part == "decode":
        return None
    waiting = [
        sequence
        for sequence in live
        if sequence.is_background == newcomer.is_background and _may_be_refused(sequence)
    ]
    counts = Counter(sequence.tenant for sequence in waiting)
    own = (counts[newcomer.tenant] + 1) / newcomer.submit.share.weight
    load = {s.tenant: counts[s.tenant] / s.submit.share.weight for s in waiting}
    crowding = [sequence for sequence in waiting if load[sequence.tenant] > own]
    return max(crowding, key=lambda s: (load[s.tenant], s.arrival), default=None)


def is_full(
    live: Iterable[Sequence], newcomer: Sequence, num_waiting: int, max_waiting: int
) -> bool:
    """Say whether the queue has no room for a newcomer. Who is in the background takes none from others."""
    if num_waiting < max_waiting or newcomer.is_background:
        return num_waiting >= max_waiting
    num_others = sum(isinstance(s.state, Waiting) and not s.is_background for s in live)
    return num_others >= max_waiting


def _may_be_refused(sequence: Sequence) -> bool:
    """Whether it waits for its first turn, so that nothing is lost but its place."""
    is_first = sequence.num_cached is None and len(sequence.tokens) == sequence.num_prompt
    is_fresh = isinstance(sequence.state, Waiting) and is_first and not sequence.is_spared
    return is_fresh and sequence.submit.part != "decode"
