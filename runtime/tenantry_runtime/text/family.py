"""What differs between model families, gathered in one value per family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tenantry_runtime.core import Message, RenderOptions, Tool

from .output import CallWriter, Rules, Terminal

FamilyName: TypeAlias = Literal["kimi", "glm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """What a request that names neither gets."""

    temperature: float
    top_p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Chat format and output format of the models that share them."""

    name: FamilyName
    context: Callable[[Sequence[Message], Sequence[Tool], RenderOptions], dict[str, Any]]
    """What the template sees of a request; raises `InvalidInput`."""
    terminals: Mapping[str, Terminal]
    """By control string. A vocabulary may lack some of them."""
    rules: Rules
    calls: Callable[[Sequence[Tool], Sequence[Message], Callable[[], str]], CallWriter]
    """Make a writer from the tools on offer, the conversation so far and a source of call ids."""
    stop: tuple[str, ...]
    """Control strings that end a turn, whatever the checkpoint's files say."""
    after_answer: str
    """The control string with which the model ends a turn without calls."""
    after_calls: str
    """The same for a turn with calls."""
    sampling: SamplingDefaults
