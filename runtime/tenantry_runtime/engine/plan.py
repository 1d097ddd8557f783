"""What a scheduler asks of a member, and what comes back. S sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence as ListLike
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from tenantry_runtime.cache.page_batch import PageBatch
from tenantry_runtime.cache.pages import StepNumber
from tenantry_runtime.core import ChosenLogprob, Phase

from .guide import Guide
from .sequence import Sequence

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """One sequence's share of a step."""

    sequence: Sequence
    token_ids: ListLike[int]
    """Read at positions `start` and on; their cache is written."""
    start: int
    wants_token: bool
    """Whether to sample what follows the last of them."""

    @property
    def end(self) -> int:
        """The position that follows the last of them."""
        return self.start + len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One step of one member."""

    step: StepNumber
    """Counted per page pool."""
    phase: Phase
    entries: tuple[Entry, ...]

    @property
    def num_tokens(self) -> int:
        return sum(len(entry.token_ids) for entry in self.entries)

    @property
    def wanting(self) -> tuple[Entry, ...]:
        """Those that want a token, in their order."""
        return tuple(entry for entry in self.entries if entry.wants_token)

    @property
    def guides(self) -> tuple[Guide | None, ...]:
        """Of those that want a token, where they have one."""
        return tuple(entry.sequence.guide for entry in self.wanting)

    @property
    def is_adjusting(self) -> bool:
        """Whether somebody asks for penalties or biases."""
        return any(e.sequence.history is not None for e in self.wanting)

    @property
    def wants_logprobs(self) -> bool:
        """Whether somebody asks how likely the token is."""
        return any(e.sequence.submit.sampling.top_logprobs is not None for e in self.wanting)

    def place(self, rows: Iterable[T | None]) -> tuple[T | None, ...]:
        """Return by entry what there is of each that wants a token."""
        remaining = iter(rows)
        return tuple(next(remaining) if e.wants_token else None for e in self.entries)

    def pages(self) -> PageBatch:
        """Return the pages that the entries read and write."""
        return PageBatch(
            leases_S=[entry.sequence.held.lease for entry in self.entries],
            owner_S=[entry.sequence.held.owner for entry in self.entries],
            start_S=[entry.start for entry in self.entries],
            read_len_S=[entry.end for entry in self.entries],
        )


class Drawn(NamedTuple):
    """A token, and how likely it was where that was asked."""

    token_id: int
    logprob: ChosenLogprob | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step gave, in the order of its plan's entries."""

    tokens_S: tuple[int | None, ...]
    """None where no token was wanted, or where the logits are not finite."""
    ok_S: tuple[bool, ...]
    """Whether every page that the sequence read or wrote was its own."""
    fault_S: tuple[int, ...] = ()
    """What was found where it was not (`tenantry_kernels.page_check`); empty where all is ok."""
    logprobs_S: tuple[ChosenLogprob | None, ...] = ()
    """How likely the tokens were, of who asks for it; empty where nobody does."""

    def drawn(self, s: int) -> Drawn | None:
        """Return what was drawn for an entry, if anything was."""
        token_id = self.tokens_S[s]
        if token_id is None:
            return None
        return Drawn(token_id, self.logprobs_S[s] if self.logprobs_S else None)
