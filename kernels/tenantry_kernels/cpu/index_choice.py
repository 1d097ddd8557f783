"""Compiled loops of an indexer: scores of keys, and which of them are the best (`sparse_index`).

numba's cache notices a change of this file only: `KERNELS` names the content of those it is made of,
and a test holds them together.
"""

# what numba compiles has the types of its first call
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np

from .blocks import stay_whole, widen
from .compiler import compiled
from .kernels import (
    COLUMNS,
    HEADS,
    TILE,
    ZERO,
    copy_row,
    copy_rows,
    match_keys,
    own_slots,
    weigh_rows,
)

KERNELS = "0855bb549473a69db0198e0896ff4f1b"
"""The first half of the SHA-256 of `blocks.py`, `compiler.py` and `kernels.py`, one after the other."""


@compiled
def index_scores(q, head_weight, pool, row, page_table, read_len, page_tokens, out):
    """out[s, k] = sum over j of head_weight[t, j] * relu(q[t, j] . key k), -inf past the end.

    q: [T, J, D]; head_weight: [T, J]; pool: bits [slots, D]; row, read_len: [S]; page_table: [S, P];
    out: [S, K]. False if a sequence names a page that is not there.
    """
    stay_whole()
    num_heads, width = q.shape[1], q.shape[2]
    query = np.zeros((num_heads + HEADS - 1, width), q.dtype)
    slot = np.empty(out.shape[1] + 3, np.int64)
    match = np.empty((HEADS, out.shape[1] + 3), np.float32)
    everything = np.empty(0, np.int64)
    for s in range(row.shape[0]):
        n = own_slots(page_table[s], read_len[s], everything, page_tokens, pool.shape[0], slot)
        if n < 0:
            return False
        if n:
            slot[n] = slot[n + 1] = slot[n + 2] = slot[n - 1]
        for k in range(out.shape[1]):
            out[s, k] = ZERO if k < n else np.float32(-np.inf)
        copy_rows(q[row[s]], query)
        for first in range(0, num_heads, HEADS):
            match_keys(query, first, pool, slot, n, match)
            for h in range(min(HEADS, num_heads - first)):
                add_scores(match[h], n, head_weight[row[s], first + h], out[s])
    return True


@compiled
def chunk_choices(q, head_weight, key, chosen):
    """chosen[t] = `choose_best` of the index scores of what row t sees.

    q: [T, J, D], of the T last of K tokens; head_weight: [T, J]; key: [K, D]; chosen: [T, C].
    """
    num_rows, num_heads, width = q.shape
    num_keys = key.shape[0]
    panels = columns_of(key)
    order = np.arange(len(panels))
    query = np.zeros((num_heads, TILE, width), np.float32)
    match = np.empty((TILE, COLUMNS), np.float32)
    total = np.empty((TILE, len(panels) // width * COLUMNS), np.float32)
    for first in range(0, num_rows, TILE):
        last = min(first + TILE, num_rows)
        for t in range(first, last):
            for j in range(num_heads):
                copy_row(q[t, j], query[j, t - first])
        for start in range(0, num_keys - num_rows + last, COLUMNS):
            panel = start // COLUMNS * width
            for t in range(first, last):
                for k in range(start, start + COLUMNS):
                    total[t - first, k] = ZERO
            for j in range(num_heads):
                weigh_rows(
                    query[j], panels, order[panel : panel + width], width, match[: last - first]
                )
                for t in range(first, last):
                    add_scores(
                        match[t - first], COLUMNS, head_weight[t, j], total[t - first, start:]
                    )
        for t in range(first, last):
            choose_best(total[t - first], num_keys - num_rows + t + 1, chosen[t])


@compiled
def columns_of(key):
    """Return a key's values one below the other: panels of `COLUMNS` keys, a row for each of D values.

    Sums of columns need no sums over lanes, which for few values are most of a dot product's work.
    """
    num_keys, width = key.shape
    panels = np.zeros(((num_keys + COLUMNS - 1) // COLUMNS * width, COLUMNS), np.float32)
    for k in range(num_keys):
        first, column = k // COLUMNS * width, k % COLUMNS
        for i in range(width):
            panels[first + i, column] = widen(key[k, i])
    return panels


@compiled
def add_scores(match, n, factor, total):
    """total[k] += factor * relu(match[k]) for the first `n`: what one head says of the keys."""
    for k in range(n):
        # of not-a-number the comparison is false, and it stays
        total[k] += factor * (ZERO if match[k] < ZERO else match[k])


@compiled
def num_reaching(key, least):
    """Return how many of these numbers are `least` or more."""
    count = np.int32(0)
    for k in range(len(key)):
        count = np.int32(count + np.int32(key[k] >= least))
    return count


@compiled
def choose_best(score, n, chosen):
    """Fill `chosen` with where the highest of the first `n` scores are; -1 where there are fewer."""
    stay_whole()
    num_chosen = len(chosen)
    key = np.empty(n, np.int32)
    bits = score.view(np.int32)
    for k in range(n):
        # of the same order as the numbers
        key[k] = bits[k] ^ ((bits[k] >> np.int32(31)) & np.int32(0x7FFFFFFF))
    # bit by bit the highest number that so many reach
    least = np.int32(-(2**31))
    for bit in range(31, -1, -1):
        higher = np.int32(least + (np.int64(1) << bit))
        count = num_reaching(key, higher)
        if count >= num_chosen:
            least = higher
        if count == num_chosen:
            break
    filled = 0
    for k in range(n):
        if key[k] > least and filled < num_chosen:
            chosen[filled] = k
            filled += 1
    for k in range(n):
        if key[k] == least and filled < num_chosen:
            chosen[filled] = k
            filled += 1
    for k in range(filled, num_chosen):
        chosen[k] = -1
