"""`page_check` in compiled loops: the check before a step, what its appends leave, the check after.

A step's plan is int64 [F, S]:

| row | what |
|---|---|
| PAGES | pages of the sequence, consecutive in `index_N` and `tag_N` |
| OWNER | the request's owner slot |
| START, END | tokens in the cache before and after the step |
| FIRST | the first logical page that is checked |
| SERIAL | a number that no other sequence has |

S sequences, N pages of all of them one after another, T rows, L page-table columns, P pages of the
pool with the sink last. Masks and fault words are as `tenantry_kernels.page_check` has them.
"""

# what numba compiles has the types of its first call
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np

from tenantry_kernels.page_check import (
    BAD_FILL,
    BAD_INDEX,
    BAD_OWNER,
    BAD_TAG,
    NO_SLOT,
    PAGE_TOKENS,
    PUBLIC,
)

from .compiler import compiled

PAGES, OWNER, START, END, FIRST, SERIAL = range(6)

_TOKENS, _NO_SLOT = np.int64(PAGE_TOKENS), np.int64(NO_SLOT)
_OWNER_SHIFT, _OWNER_MASK = np.int64(48), np.int64(0xFFFF)
_FILL_SHIFT, _FILL_MASK = np.int64(32), np.int64(0xFFFFFFFF)
_BAD_INDEX, _BAD_TAG = np.int64(BAD_INDEX), np.int64(BAD_TAG)
_BAD_OWNER, _BAD_FILL = np.int64(BAD_OWNER), np.int64(BAD_FILL)


@compiled
def fault_of(tag_P, fill_P, index_N, tag_N, at, num_held, owner, filled, end, first):
    """Return the fault word of one sequence, whose pages begin at `at`."""
    num_pages = np.int64(tag_P.shape[0] - 1)
    for page in range(first, (end + _TOKENS - 1) // _TOKENS):
        index = index_N[at + page] if page < num_held else np.int64(-1)
        if index < 0 or index >= num_pages:
            return ((page + 1) << 8) | _BAD_INDEX
        tag = tag_P[index]
        tokens = min(max(filled - page * _TOKENS, np.int64(0)), _TOKENS)
        fill = ((page << _FILL_SHIFT) | tokens) if tokens > 0 else np.int64(0)
        holder = (tag >> _OWNER_SHIFT) & _OWNER_MASK
        bits = np.int64(0)
        if tag != tag_N[at + page]:
            bits |= _BAD_TAG
        if holder != owner and holder != PUBLIC:
            bits |= _BAD_OWNER
        if fill_P[index] != fill:
            bits |= _BAD_FILL
        if bits:
            return ((page + 1) << 8) | bits
    return np.int64(0)


@compiled
def admit(
    tag_P, fill_P, holder_F, fault_F, index_N, tag_N, plan_FS, table_SL, read_len_S, slot_T, fault_S
):
    """Check a step's sequences; write its page table, read lengths, write slots and faults.

    holder, fault: what is remembered of sequences that failed, by the last bits of their serial.
    """
    sink = np.int64(tag_P.shape[0] - 1)
    mask = np.int64(fault_F.shape[0] - 1)
    at, row = np.int64(0), np.int64(0)
    for s in range(plan_FS.shape[1]):
        num_held, owner = plan_FS[PAGES, s], plan_FS[OWNER, s]
        start, end = plan_FS[START, s], plan_FS[END, s]
        serial = plan_FS[SERIAL, s]
        flag = serial & mask
        fault = fault_F[flag] if holder_F[flag] == serial else np.int64(0)
        if fault == 0:
            fault = fault_of(
                tag_P, fill_P, index_N, tag_N, at, num_held, owner, start, end, plan_FS[FIRST, s]
            )
            if fault != 0:
                holder_F[flag] = serial
                fault_F[flag] = fault
        fault_S[s] = fault
        read_len_S[s] = end if fault == 0 else 0
        for column in range(table_SL.shape[1]):
            index = index_N[at + column] if column < num_held else np.int64(0)
            table_SL[s, column] = index if fault == 0 else sink
        for position in range(start, end):
            slot = _NO_SLOT
            if fault == 0:
                slot = index_N[at + position // _TOKENS] * _TOKENS + position % _TOKENS
            slot_T[row] = slot
            row += 1
        at += num_held


@compiled
def land(fill_P, plan_FS, slot_T):
    """Count the rows that have been written into their pages; those without a slot have not."""
    num_slots = np.int64(fill_P.shape[0] - 1) * _TOKENS
    row = np.int64(0)
    for s in range(plan_FS.shape[1]):
        for position in range(plan_FS[START, s], plan_FS[END, s]):
            slot = slot_T[row]
            row += 1
            if 0 <= slot < num_slots:
                index = slot // _TOKENS
                tokens = (fill_P[index] & _FILL_MASK) + 1
                fill_P[index] = ((position // _TOKENS) << _FILL_SHIFT) | tokens


@compiled
def confirm(tag_P, fill_P, holder_F, fault_F, index_N, tag_N, plan_FS, slot_T, fault_S):
    """Count what has landed at these slots (`land`), then check the written pages as they must be now.

    Set the faults of what failed. No slots: nothing has landed.
    """
    if slot_T.shape[0]:
        land(fill_P, plan_FS, slot_T)
    mask = np.int64(fault_F.shape[0] - 1)
    at = np.int64(0)
    for s in range(plan_FS.shape[1]):
        num_held, owner, end = plan_FS[PAGES, s], plan_FS[OWNER, s], plan_FS[END, s]
        if fault_S[s] == 0:
            first = max(plan_FS[START, s] // _TOKENS, plan_FS[FIRST, s])
            fault = fault_of(tag_P, fill_P, index_N, tag_N, at, num_held, owner, end, end, first)
            if fault != 0:
                flag = plan_FS[SERIAL, s] & mask
                holder_F[flag] = plan_FS[SERIAL, s]
                fault_F[flag] = fault
                fault_S[s] = fault
        at += num_held
