"""The only form in which pages reach an op: a batch that a tracker has checked.

T rows (new tokens) of S sequences, L page-table columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

import torch


class Landing(Protocol):
    """Where appends report what they have written, for the check after the step."""

    def landed(self, slot_T: torch.Tensor, num_appends: int = 1) -> None:
        """Learn that so many append ops have written their rows at these slots, after their writes.

        `slot_T` is what the ops were given, not what they should have been given.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendCount:
    """Where one append op of a step counts the rows that it has written, on the device.

    The last one adds the rows that all of them have written to their pages' fills.
    """

    landed_T: torch.Tensor
    """int32: appends that have written each row."""
    is_last: bool
    fill_P: torch.Tensor
    position_T: torch.Tensor
    num_appends: int


class CountsOnDevice(ABC):
    """A landing whose appends count by themselves what they have written."""

    @abstractmethod
    def next_append(self) -> AppendCount:
        """Return where the next append of the step counts; called once for each."""
        ...


class Untracked:
    """A landing that nobody asks."""

    def landed(self, slot_T: torch.Tensor, num_appends: int = 1) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedBatch:
    """Where a step reads and writes. Made by a tracker (`PageTags`, `NoTags`) alone.

    A sequence that did not pass reads nothing and writes nothing: its table names the sink, its
    length is 0 and its rows have no slots.
    """

    page_table_SL: torch.Tensor
    """int64 page indices in logical order; columns past a sequence's last page are 0 and never read."""
    read_len_S: tuple[int, ...]
    """Tokens readable per sequence, those written in this step included; 0 reads nothing."""
    write_slot_T: torch.Tensor
    """int64 `page * PAGE_TOKENS + offset` for each row; `NO_SLOT` rows (`tenantry_kernels.page_check`) are not written."""
    device_len_S: torch.Tensor | None = None
    """int64: `read_len_S` on the device, where ops read it instead of the host's, which is then only
    what the step would read if every sequence passed. None: the host's counts."""
    landing: Landing = field(default_factory=Untracked)
