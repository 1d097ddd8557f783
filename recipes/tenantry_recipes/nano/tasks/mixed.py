"""Conversations whose turns come from different tasks: as people mix them."""

from __future__ import annotations

from .arithmetic import addition3, arithmetic
from .conversation import TurnTask
from .facts import facts, small_talk
from .lists import lists
from .reasoning import reasoning
from .strings import strings
from .task import Draw, Turn

_MAKERS = (arithmetic, addition3, strings, lists, reasoning, facts, small_talk)


def mixed(draw: Draw) -> Turn:
    """Ask something of a random kind."""
    return draw.choice(_MAKERS)(draw)


MIXED = TurnTask(name="mixed", make_turn=mixed, max_turns=8)
