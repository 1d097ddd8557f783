"""Sorting in words, two entries at a time: no step asks for more than one comparison."""

from __future__ import annotations

from collections.abc import Sequence


def first_steps(entries: Sequence[str], ordered: Sequence[str]) -> str:
    """Find what `ordered`, the sorted entries, begins with: "5, 3: 3. 3, 8: 3."."""
    best, steps = entries[0], []
    for entry in entries[1:]:
        pair = f"{best}, {entry}"
        best = min(best, entry, key=ordered.index)
        steps.append(f"{pair}: {best}.")
    return " ".join(steps)


def sorting_steps(entries: Sequence[str], ordered: Sequence[str]) -> str:
    """Take the first of the entries, then the first of those left, until one is left."""
    left, steps = list(entries), []
    for best in ordered[:-1]:
        steps.append(f"{first_steps(left, ordered)} So {best}.")
        left.remove(best)
        steps.append(f"Left {', '.join(left)}.")
    return " ".join(steps)
