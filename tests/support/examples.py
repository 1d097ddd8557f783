"""How many examples of a property are tried: of one number, which the profile has."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(share: float, **more: Any) -> settings:
    """Return settings with `share` of the profile's examples: more than 1 for what is fast, less for what is slow.

    `more` goes to hypothesis as it is.
    """
    return settings(max_examples=max(1, round(share * settings().max_examples)), **more)
