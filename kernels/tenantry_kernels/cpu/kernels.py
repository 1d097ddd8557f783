"""The compiled loops. Compute is float32; arrays hold float32, or BF16 as uint16 (`bits`).

Sums may be reordered and fused (`compiler.FAST_MATH`), but NaN and infinity stay what they are, so that the
sampler sees a sequence that went wrong. Every row's result is the same bits whatever other rows there
are. Widths of whole vectors are taken in blocks (`blocks`), others in plain loops.

numba's cache notices a change of a kernel's own file only: `BLOCKS` names the content of the others
that these are made of, and a test holds them together. `index_choice`, `fp8_pages` and `step` are made
of these in turn.
"""

from __future__ import annotations

import numpy as np

from .blocks import LANES, STEP, dots, float_of, narrow, stay_whole, weighted_rows, widen
from .compiler import compiled, in_order

BLOCKS = "a48c694cab5f2ad57d65017a6aa5e7ed"
"""The first half of the SHA-256 of `blocks.py` and `compiler.py`, one after the other."""

ZERO, ONE = np.float32(0), np.float32(1)
LOG2_E = np.float32(1.44269504)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)  # Cody and Waite's split
LEAST_LOG_WEIGHT = np.float32(-64)
"""Of a softmax, beside its largest: what is less is 0, for it adds nothing to a float32 sum.

What exp makes of a token that is not to be seen would be no normal number once it is divided by the
sum, and a product with such a number takes some processors a hundred times as long.
"""
HEADS = 8
"""Heads that read a sequence's cached rows together."""
ROWS, OUTPUTS = 4, 4
"""Rows and outputs of a block: 16 sums and 8 inputs fill the registers of AVX-512."""
PANEL = 16
"""Outputs of a product that are done for all rows before the next: their weights stay in L1."""
COLUMNS = 4 * LANES
"""Values of a block of weighted sums."""
TILE = 16
"""Rows of a chunk whose scores are computed together, up to what the last of them sees."""
KEYS = 32
"""Rows that such a block takes before the next columns: they stay in L1."""

_dots_of_four, _dots_of_two, _dots_of_one = dots(ROWS, OUTPUTS), dots(2, OUTPUTS), dots(1, OUTPUTS)
_weigh_four, _weigh_one = weighted_rows(ROWS, 4), weighted_rows(1, 4)


@in_order
def exp(x):
    """Return e**x to two units in the last place. Below e**-87 it is that, above e**88 too; NaN stays."""
    # comparisons, for they send NaN to the bound: its conversion to an integer would be undefined
    bounded = x if x > np.float32(-87) else np.float32(-87)
    bounded = bounded if bounded < np.float32(88) else np.float32(88)
    power = np.floor(bounded * LOG2_E + np.float32(0.5))
    r = (bounded - power * LN2_HIGH) - power * LN2_LOW
    # Taylor's coefficients, |r| <= ln 2 / 2
    p = np.float32(1 / 5040)
    p = p * r + np.float32(1 / 720)
    p = p * r + np.float32(1 / 120)
    p = p * r + np.float32(1 / 24)
    p = p * r + np.float32(1 / 6)
    p = p * r + np.float32(0.5)
    p = p * r + ONE
    p = p * r + ONE
    scale = float_of((np.int32(power) + np.int32(127)) << np.int32(23))
    return p * scale if x == x else x


@compiled
def takes_blocks(x, weight):
    """Tell whether dot products of these are of whole vectors: of LANES values, or STEP where both are BF16."""
    step = LANES if x.itemsize + weight.itemsize > 4 else STEP
    return x.shape[1] % step == 0


@compiled
def product(x, weight, out):
    """out[t, o] = x[t] . weight[o]. x: floats or bits [T, I]; weight: bits [O, I]; out: [T, O]."""
    stay_whole()
    num_rows, num_out = x.shape[0], weight.shape[0]
    if not takes_blocks(x, weight) or num_out < OUTPUTS:
        product_in_order(x, weight, out)
        return
    rows = ROWS if num_rows >= ROWS else 2 if num_rows > 1 else 1
    for first in range(0, num_out, PANEL):
        for begin in range(0, num_rows, rows):
            # the last block begins inside the one before and writes the same there
            t = min(begin, num_rows - rows)
            for start in range(first, min(first + PANEL, num_out), OUTPUTS):
                o = min(start, num_out - OUTPUTS)
                at = (o, o + 1, o + 2, o + 3)
                if rows == ROWS:
                    _dots_of_four(x, t, weight, at, out, t, o)
                elif rows == 2:
                    _dots_of_two(x, t, weight, at, out, t, o)
                else:
                    _dots_of_one(x, t, weight, at, out, t, o)


@compiled
def product_in_order(x, weight, out):
    """`product` for any widths."""
    for t in range(x.shape[0]):
        for o in range(weight.shape[0]):
            total = ZERO
            for i in range(x.shape[1]):
                total += widen(x[t, i]) * widen(weight[o, i])
            out[t, o] = narrow(total, out)


@compiled
def expand_heads(x, weight, first, out):
    """out[t, n] = weight[n, first:] @ x[t, n]. x: [T, N, L]; weight: bits [N, R, L]."""
    mine = np.empty((x.shape[0], x.shape[2]), x.dtype)
    answer = np.empty((x.shape[0], out.shape[2]), np.float32)
    for n in range(weight.shape[0]):
        for t in range(x.shape[0]):
            copy_row(x[t, n], mine[t])
        product(mine, weight[n, first:], answer)
        for t in range(x.shape[0]):
            copy_row(answer[t], out[t, n])


@compiled
def absorb_heads(x, weight, out):
    """out[t, n] = x[t, n] @ weight[n, :d]. x: [T, N, d]; weight: bits [N, R, L]; out: [T, N, L]."""
    num_rows, num_in = x.shape[0], x.shape[2]
    factor = np.empty((num_rows, num_in), np.float32)
    total = np.empty((num_rows, out.shape[2]), np.float32)
    order = np.arange(num_in)
    for n in range(weight.shape[0]):
        for t in range(num_rows):
            copy_row(x[t, n], factor[t])
        weigh_rows(factor, weight[n], order, num_in, total)
        for t in range(num_rows):
            copy_row(total[t], out[t, n])


@compiled
def swiglu(gate_up, out):
    """out = silu(gate) * up. gate_up: [T, gate | up]; out: [T, I]."""
    num_rows, width = out.shape
    for t in range(num_rows):
        for i in range(width):
            gate, up = widen(gate_up[t, i]), widen(gate_up[t, width + i])
            out[t, i] = narrow(gate / (ONE + exp(-gate)) * up, out)


@compiled
def routed_experts(x, expert, weight, gate_up, down, out):
    """out[t] = sum over k of weight[t, k] * expert[t, k](x[t]).

    x, out: [T, H]; expert, weight: [T, K]; gate_up: bits [E, 2 I, H]; down: bits [E, H, I].
    """
    num_rows, num_choices = expert.shape
    num_experts, width, hidden = down.shape[0], down.shape[2], down.shape[1]
    row = np.empty(num_rows, np.int64)
    factor = np.empty(num_rows, np.float32)
    mine = np.empty((num_rows, hidden), x.dtype)
    raw = np.empty((num_rows, 2 * width), np.float32)
    gated = np.empty((num_rows, width), x.dtype)
    answer = np.empty((num_rows, hidden), np.float32)
    total = np.zeros((num_rows, hidden), np.float32)
    for e in range(num_experts):
        n = 0
        for t in range(num_rows):
            for k in range(num_choices):
                if expert[t, k] == e:
                    row[n], factor[n] = t, weight[t, k]
                    for i in range(hidden):
                        mine[n, i] = x[t, i]
                    n += 1
        if n:
            product(mine[:n], gate_up[e], raw[:n])
            swiglu(raw[:n], gated[:n])
            product(gated[:n], down[e], answer[:n])
            for m in range(n):
                for i in range(hidden):
                    total[row[m], i] += factor[m] * answer[m, i]
    copy_rows(total, out)


@compiled
def route(x, weight, bias, num_groups, num_kept, scaling, is_normalized, expert, factor):
    """Choose the experts with the highest sigmoid(x . weight) + bias; weigh them without bias.

    Only experts of the `num_kept` groups whose two best sum highest are chosen. x: [T, H]; weight:
    [E, H]; bias: [E]; expert, factor: [T, K], the best first.
    """
    stay_whole()
    num_rows, num_choices = expert.shape
    num_experts = weight.shape[0]
    score = np.empty((num_rows, num_experts), np.float32)
    wide = np.empty(x.shape, np.float32)
    copy_rows(x, wide)
    product(wide, weight, score)
    preference = np.empty(num_experts, np.float32)
    is_taken = np.empty(num_experts, np.bool_)
    for t in range(num_rows):
        for e in range(num_experts):
            score[t, e] = ONE / (ONE + exp(-score[t, e]))
            preference[e] = score[t, e] + bias[e]
            is_taken[e] = False
        if num_kept < num_groups:
            drop_worst_groups(preference, num_groups, num_kept)
        total = ZERO
        for k in range(num_choices):
            best = first_of_best(preference, is_taken)
            is_taken[best] = True
            expert[t, k], factor[t, k] = best, score[t, best]
            total += score[t, best]
        divisor = total + np.float32(1e-20) if is_normalized else ONE
        for k in range(num_choices):
            factor[t, k] = factor[t, k] / divisor * scaling


@compiled
def drop_worst_groups(preference, num_groups, num_kept):
    """Make all experts the last choice but those of the groups whose two best sum highest."""
    size = len(preference) // num_groups
    rank = np.empty(num_groups, np.float32)
    is_kept = np.zeros(num_groups, np.bool_)
    for g in range(num_groups):
        best = second = np.float32(-np.inf)
        for e in range(g * size, (g + 1) * size):
            if preference[e] > best:
                best, second = preference[e], best
            elif preference[e] > second:
                second = preference[e]
        rank[g] = best + second
    for _ in range(num_kept):
        is_kept[first_of_best(rank, is_kept)] = True
    for e in range(len(preference)):
        if not is_kept[e // size]:
            preference[e] = np.float32(-np.inf)


@compiled
def first_of_best(value, is_taken):
    """Return where the highest value is that is not taken, whatever the values are."""
    best = -1
    for e in range(len(value)):
        # the first is the best so far even where it is not a number, which exceeds nothing
        if not is_taken[e] and (best < 0 or value[e] > value[best]):
            best = e
    return best


@compiled
def rms_norm(x, first, weight, eps, out):
    """out[t] = v / sqrt(mean(v**2) + eps) * weight, v = x[t, first:]. out: [T, H]; weight: bits [H]."""
    stay_whole()
    num_rows, width = out.shape
    for t in range(num_rows):
        total = ZERO
        for i in range(width):
            value = widen(x[t, first + i])
            total += value * value
        factor = ONE / np.sqrt(total / np.float32(width) + eps)
        for i in range(width):
            out[t, i] = narrow(widen(x[t, first + i]) * factor * widen(weight[i]), out)


@compiled
def copy_row(source, out):
    """out[i] = source[i] for as many values as `source` has. A slice assignment compiles slowly."""
    for i in range(len(source)):
        out[i] = narrow(widen(source[i]), out)


@compiled
def copy_rows(source, out):
    """`copy_row` for as many rows as `source` has."""
    for n in range(source.shape[0]):
        copy_row(source[n], out[n])


@compiled
def own_slots(page_table, read_len, chosen, page_tokens, num_slots, slot):
    """Fill `slot` with what one sequence reads; return how many, or -1 if one is in no page.

    page_table: [P]; chosen: [K] positions, of which those outside the sequence are nothing, or [0]
    for all `read_len`.
    """
    stay_whole()
    if read_len > page_table.shape[0] * page_tokens:
        return -1
    n = 0
    for k in range(chosen.shape[0] if chosen.shape[0] else read_len):
        position = chosen[k] if chosen.shape[0] else k
        if 0 <= position < read_len:
            slot[n] = page_table[position // page_tokens] * page_tokens + position % page_tokens
            if not 0 <= slot[n] < num_slots:
                return -1
            n += 1
    return n


@compiled
def match_keys(query, first, pool, slot, n, score):
    """score[h, k] = query[first + h] . row at slot[k], for all h and the first `n` slots.

    `slot` and `score` have room for three more, which are computed too; of heads it has fours.
    """
    stay_whole()
    num_heads = score.shape[0]
    is_blocked = takes_blocks(query, pool)
    for k in range(0, n, OUTPUTS):
        if is_blocked:
            at = (slot[k], slot[k + 1], slot[k + 2], slot[k + 3])
            for h in range(0, num_heads, ROWS):
                _dots_of_four(query, first + h, pool, at, score, h, k)
        else:
            for h in range(num_heads):
                for j in range(k, k + OUTPUTS):
                    total = ZERO
                    for i in range(query.shape[1]):
                        total += widen(query[first + h, i]) * widen(pool[slot[j], i])
                    score[h, j] = total


@compiled
def softmax(score, scale, n):
    """Turn the first `n` scores into weights of sum 1; they are 0 or normal numbers, NaN stays."""
    stay_whole()
    highest = np.float32(-np.inf)
    for k in range(n):
        score[k] *= scale
        highest = max(highest, score[k])
    total = ZERO
    for k in range(n):
        less = score[k] - highest
        score[k] = ZERO if less < LEAST_LOG_WEIGHT else exp(less)
        total += score[k]
    for k in range(n):
        score[k] /= total


@compiled
def weigh_rows(weight, values, at, n, out):
    """out[t] = sum over k < n of weight[t, k] * values[at[k]], its first values. out: [T, L]."""
    stay_whole()
    num_rows, width = out.shape
    for t in range(num_rows):
        for i in range(width):
            out[t, i] = ZERO
    for first in range(0, n, KEYS):
        last = min(first + KEYS, n)
        if width % COLUMNS == 0:
            t = 0
            while t < num_rows:
                rows = ROWS if num_rows - t >= ROWS else 1
                for column in range(0, width, COLUMNS):
                    if rows == ROWS:
                        _weigh_four(weight, t, values, at, first, last, column, out)
                    else:
                        _weigh_one(weight, t, values, at, first, last, column, out)
                t += rows
        else:
            for t in range(num_rows):
                for k in range(first, last):
                    for i in range(width):
                        out[t, i] += weight[t, k] * widen(values[at[k], i])


@compiled
def decode_attention(q, pool, row, page_table, read_len, chosen, page_tokens, scale, out):
    """Latent sums of one query per sequence over its own rows, 0 where it reads nothing.

    q: floats or bits [T, N, C]; pool: bits [slots, C]; row, read_len: [S]; page_table: [S, P];
    chosen: [T, K], or [T, 0] for everything; out: [T, N, L]. Only the rows in `row` are read and
    written. False if a sequence names a page that is not there.
    """
    stay_whole()
    num_heads, width = q.shape[1], q.shape[2]
    query = np.zeros((num_heads + HEADS - 1, width), q.dtype)
    longest = chosen.shape[1]
    if longest == 0:
        for s in range(read_len.shape[0]):
            longest = max(longest, read_len[s])
    # three more, for keys are matched by fours: the sequence's last one again
    slot = np.empty(longest + 3, np.int64)
    together = min(HEADS, -(-num_heads // ROWS) * ROWS)
    weight = np.empty((together, longest + 3), np.float32)
    sums = np.empty((together, out.shape[2]), np.float32)
    for s in range(row.shape[0]):
        t = row[s]
        n = own_slots(page_table[s], read_len[s], chosen[t], page_tokens, pool.shape[0], slot)
        if n < 0:
            return False
        if n:
            slot[n] = slot[n + 1] = slot[n + 2] = slot[n - 1]
        copy_rows(q[t], query)
        for first in range(0, num_heads, HEADS):
            match_keys(query, first, pool, slot, n, weight)
            for h in range(together):
                softmax(weight[h], scale, n)
            weigh_rows(weight, pool, slot, n, sums)
            copy_rows(sums[: min(HEADS, num_heads - first)], out[t, first:])
    return True


@compiled
def chunk_attention(q, key, value, bias, scale, out):
    """out[t, n] = softmax(scale * q[t, n] . key[n] + bias[t]) @ value[n], over what row t sees.

    q: [T, N, D], of the T last of K tokens; key: [N, K, D]; value: [N, K, at least V], or one for
    all heads; bias: [T, K], or [0, 0] for none; out: [T, N, V].
    """
    num_rows, num_heads, width = q.shape
    num_keys = key.shape[1]
    order = np.arange(num_keys)
    query = np.empty((num_rows, width), q.dtype)
    score = np.empty((TILE, num_keys), np.float32)
    total = np.empty((TILE, out.shape[2]), np.float32)
    for n in range(num_heads):
        source = min(n, len(key) - 1)
        for t in range(num_rows):
            copy_row(q[t, n], query[t])
        for first in range(0, num_rows, TILE):
            last = min(first + TILE, num_rows)
            seen = num_keys - num_rows + last
            product(query[first:last], key[source, :seen], score)
            for t in range(first, last):
                mine = score[t - first]
                own = num_keys - num_rows + t + 1
                if bias.shape[0]:
                    for k in range(own):
                        mine[k] += bias[t, k]
                softmax(mine, scale, own)
                for k in range(own, seen):
                    mine[k] = ZERO
            weigh_rows(score, value[source], order, seen, total[: last - first])
            for t in range(first, last):
                copy_row(total[t - first], out[t, n])
