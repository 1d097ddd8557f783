"""Compiled loops of an indexer: scores of keys, and which of them are the best (`sparse_index`).

numba's cache notices a change of this file only: `KERNELS` names the content of those it is made of,
and a test holds them together.
"""

# what numba compiles has the types of its first call
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np

from .blocks import stay_whole
from .compiler import compiled
from .kernels import HEADS, TILE, ZERO, copy_row, copy_rows, match_keys, own_slots, product

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
    query = np.empty((TILE, width), q.dtype)
    match = np.empty((TILE, num_keys), np.float32)
    total = np.empty((TILE, num_keys), np.float32)
    for first in range(0, num_rows, TILE):
        last = min(first + TILE, num_rows)
        seen = num_keys - num_rows + last
        for t in range(first, last):
            for k in range(seen):
                total[t - first, k] = ZERO
        for j in range(num_heads):
            for t in range(first, last):
                copy_row(q[t, j], query[t - first])
            product(query[: last - first], key[:seen], match)
            for t in range(first, last):
                add_scores(match[t - first], seen, head_weight[t, j], total[t - first])
        for t in range(first, last):
            choose_best(total[t - first], num_keys - num_rows + t + 1, chosen[t])


@compiled
def add_scores(match, n, factor, total):
    """total[k] += factor * relu(match[k]) for the first `n`: what one head says of the keys."""
    for k in range(n):
        # of not-a-number the comparison is false, and it stays
        total[k] += factor * (ZERO if match[k] < ZERO else match[k])


@compiled
def choose_best(score, n, chosen):
    """Fill `chosen` with where the highest of the first `n` scores are; -1 where there are fewer."""
    stay_whole()
    num_chosen = len(chosen)
    key = np.empty(n, np.int64)
    bits = score.view(np.int32)
    for k in range(n):
        # of the same order as the numbers, and not negative
        key[k] = np.int64(bits[k] ^ ((bits[k] >> 31) & np.int32(0x7FFFFFFF))) + 2**31
    # bit by bit the highest number that so many reach
    least = np.int64(0)
    for bit in range(31, -1, -1):
        higher, count = least | (np.int64(1) << bit), 0
        for k in range(n):
            count += key[k] >= higher
        if count >= num_chosen:
            least = higher
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
