"""The tasks that the nano models are trained on and judged by."""

from __future__ import annotations

from .arithmetic import ADDITION3, ARITHMETIC
from .chain import CHAIN, CHAIN5
from .facts import FACTS, SMALL_TALK
from .filling import FILLING
from .gym import GYM
from .instructions import INSTRUCTIONS
from .lists import LISTS
from .memory import MEMORY
from .mixed import MIXED
from .reasoning import REASONING
from .retrieval import RETRIEVAL, RETRIEVAL_HARD
from .strings import STRINGS
from .task import Task
from .tools import TOOLS

_EVERY: tuple[Task, ...] = (
    ADDITION3,
    ARITHMETIC,
    CHAIN,
    CHAIN5,
    FACTS,
    FILLING,
    GYM,
    INSTRUCTIONS,
    LISTS,
    MEMORY,
    MIXED,
    REASONING,
    RETRIEVAL,
    RETRIEVAL_HARD,
    SMALL_TALK,
    STRINGS,
    TOOLS,
)

TASKS: dict[str, Task] = {task.name: task for task in _EVERY}
"""By name."""
