"""A step's pages as int64 words that one copy brings to the device, and as they are there.

| field | shape | what |
|---|---|---|
| page_table, expected_tag | [S, L] | as the leases have them; -1 where one has no page that it touches |
| owner, start, end, serial | [S] | the request's owner slot, positions `start:end` written, the lease's serial |
| first_page | [S] | the first logical page that is read or written |
| sequence, position | [T] | of each row |

A batch may be padded. A sequence that is padding touches nothing: its end is 0, and its serial is
negative and shares no flag (`passage.NUM_FLAGS`) with any of the batch.

S sequences, L page-table columns, T rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray

from tenantry_runtime.core import PAGE_TOKENS

from .page_batch import PageBatch
from .passage import NUM_FLAGS
from .positions import positions
from .words import Layout, to_device

_NO_PAGE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePages:
    """The fields, on the device. They are read, never written."""

    page_table: torch.Tensor
    expected_tag: torch.Tensor
    owner: torch.Tensor
    start: torch.Tensor
    end: torch.Tensor
    serial: torch.Tensor
    first_page: torch.Tensor
    sequence: torch.Tensor
    position: torch.Tensor

    @classmethod
    def of(cls, views: Mapping[str, torch.Tensor]) -> DevicePages:
        """Return the fields among those of a layout."""
        return cls(**{name: views[name] for name in cls.__dataclass_fields__})


def page_shapes(num_sequences: int, num_columns: int, num_rows: int) -> dict[str, tuple[int, ...]]:
    """Return the fields' shapes, for a `Layout`."""
    table, sequence, row = (num_sequences, num_columns), (num_sequences,), (num_rows,)
    return {
        "page_table": table,
        "expected_tag": table,
        "owner": sequence,
        "start": sequence,
        "end": sequence,
        "serial": sequence,
        "first_page": sequence,
        "sequence": row,
        "position": row,
    }


def num_touched(pages: PageBatch) -> int:
    """Return the columns that the batch needs, at least 1."""
    return max((-(-end // PAGE_TOKENS) for end in pages.read_len_S), default=0) or 1


def write_pages(host: Mapping[str, NDArray[np.int64]], pages: PageBatch) -> None:
    """Fill the fields, zeros before, with a batch; what is left over of them is padding."""
    num_sequences, num_rows = len(pages.leases_S), sum(pages.read_len_S) - sum(pages.start_S)
    table_SL, expected_SL = host["page_table"], host["expected_tag"]
    for s, lease in enumerate(pages.leases_S):
        num_columns = -(-pages.read_len_S[s] // PAGE_TOKENS)
        num_held = min(len(lease), num_columns)
        table_SL[s, num_held:num_columns] = _NO_PAGE
        table_SL[s, :num_held] = lease.indices[:num_held]
        expected_SL[s, :num_held] = lease.tags[:num_held]
    serial_S = [lease.serial for lease in pages.leases_S]
    of_sequences = {
        "owner": pages.owner_S,
        "start": pages.start_S,
        "end": pages.read_len_S,
        "serial": serial_S,
        "first_page": pages.first_page_S or (0,) * num_sequences,
    }
    for name, words in of_sequences.items():
        host[name][:num_sequences] = words
    if num_sequences < len(table_SL):
        flags = {serial % NUM_FLAGS for serial in serial_S}
        free_flag = next(flag for flag in count() if flag not in flags)
        host["serial"][num_sequences:] = free_flag - NUM_FLAGS
    sequence_T, position_T = positions(pages.start_S, pages.read_len_S)
    host["sequence"][:num_rows] = sequence_T
    host["sequence"][num_rows:] = num_sequences
    host["position"][:num_rows] = position_T


def send_pages(pages: PageBatch, device: torch.device) -> DevicePages:
    """Bring a batch as it is to the device, in one copy."""
    num_rows = sum(pages.read_len_S) - sum(pages.start_S)
    layout = Layout.of(page_shapes(len(pages.leases_S), num_touched(pages), num_rows))
    host = layout.host()
    write_pages(layout.fields(host), pages)
    return DevicePages.of(layout.views(to_device(host, device)))
