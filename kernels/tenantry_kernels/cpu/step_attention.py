"""The phases of a decode step up to the end of a layer's attention (`step`)."""

# what numba compiles has the types of its first call
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np

from .blocks import narrow, stay_whole, widen
from .index_choice import choose_best
from .kernels import HEADS, ONE, ROWS, ZERO, copy_row, product, rms_norm, weigh_rows
from .pages import attend_pages, score_pages, write_pages
from .shares import (
    await_units,
    claim,
    finish,
    floats_at,
    integers_at,
    matrix_at,
    stack_at,
    vector_at,
)
from .step_parts import (
    BLOCK,
    NARROW_BLOCK,
    floats,
    multiply_block,
    norm_x,
    num_blocks,
    phase_part,
    rotate,
    values,
)

BASE = "083bc27e4093358bf48513a5fdc94dfe"
"""The first half of the SHA-256 of the files that this one is made of (`step`)."""


@phase_part
def low_dim(model, layer):
    """Return the width of `low`: queries' and keys' low ranks, the shared key, the indexer's part."""
    width = model.q_rank + model.latent_dim + model.rope_dim
    if layer.index_keys:
        width += model.index_dim + model.index_heads
    return width


@phase_part
def project_down(model, layer, job, board, phase, like, pool_like, key_like):
    """low = the normed x by q_a, kv_a, and what makes index keys and index heads' weights."""
    stay_whole()
    num_rows, hidden = job.num_rows, model.hidden_dim
    down_dim = model.q_rank + model.latent_dim + model.rope_dim
    num_down, num_keys, num_weights = num_blocks(down_dim, BLOCK), 0, 0
    if layer.index_keys:
        num_keys, num_weights = (
            num_blocks(model.index_dim, BLOCK),
            num_blocks(model.index_heads, BLOCK),
        )
    num_units = num_down + num_keys + num_weights
    low = floats_at(job.low, num_rows, low_dim(model, layer))
    normed = values(num_rows, hidden, like)
    answer = floats(num_rows, BLOCK)
    unit = claim(board, phase)
    if unit < num_units:
        norm_x(model, layer.input_norm, job, normed, like)
    while unit < num_units:
        if unit < num_down:
            weight = matrix_at(layer.down, down_dim, hidden, like)
            multiply_block(normed, weight, unit, answer, low, 0)
        elif unit < num_down + num_keys:
            weight = matrix_at(layer.index_keys, model.index_dim, hidden, like)
            multiply_block(normed, weight, unit - num_down, answer, low, down_dim)
        else:
            weight = matrix_at(layer.index_weights, model.index_heads, hidden, like)
            block = unit - num_down - num_keys
            multiply_block(normed, weight, block, answer, low, down_dim + model.index_dim)
        finish(board, phase)
        unit = claim(board, phase)
    await_units(board, phase, num_units)


@phase_part
def heads_together(job):
    """Return how many heads attend in one unit: few where one row must do for all threads."""
    return ROWS if job.num_rows == 1 else HEADS


@phase_part
def heads_at(address, job, num_heads, unit, width, like):
    """Return the part of a [N / together, T, together, width] buffer that has a unit's heads."""
    together = heads_together(job)
    first = unit * together
    start = address + first * job.num_rows * width * like.itemsize
    return stack_at(start, job.num_rows, min(together, num_heads - first), width, like)


@phase_part
def project_heads(model, layer, job, board, phase, like, pool_like, key_like):
    """Make the heads' queries in the latent space and the index heads' queries; write the pages."""
    stay_whole()
    num_rows, num_heads = job.num_rows, model.num_heads
    num_index = model.index_heads if layer.index_keys else 0
    num_units = 1 + num_heads + num_index
    low = floats_at(job.low, num_rows, low_dim(model, layer))
    q_low = values(num_rows, model.q_rank, like)
    query_dim = model.nope_dim + model.rope_dim
    answer = floats(num_rows, max(query_dim, model.index_dim))
    factor = floats(num_rows, model.nope_dim)
    total = floats(num_rows, model.latent_dim)
    order = np.arange(model.nope_dim)
    unit = claim(board, phase)
    if unit < num_units:
        weight = vector_at(layer.q_norm, model.q_rank, like)
        rms_norm(low, 0, weight, np.float32(model.low_eps), q_low)
    while unit < num_units:
        if unit < num_heads:
            up = stack_at(layer.q_up, num_heads, query_dim, model.q_rank, like)
            product(q_low, up[unit], answer)
            absorb(model, layer, job, unit, answer, factor, order, total, like)
        elif unit == num_heads:
            write_latents(model, layer, job, low, like, pool_like)
            if layer.index_keys:
                write_index_keys(model, layer, job, low, like, key_like)
        else:
            j = unit - num_heads - 1
            up = stack_at(layer.index_queries, num_index, model.index_dim, model.q_rank, like)
            product(q_low, up[j], answer)
            turn = floats_at(job.turn, num_rows, model.rope_dim)
            query = stack_at(job.index_query, num_rows, num_index, model.index_dim, like)
            for t in range(num_rows):
                rotate_front(answer[t], turn[t], query[t, j])
        finish(board, phase)
        unit = claim(board, phase)
    await_units(board, phase, num_units)


@phase_part
def absorb(model, layer, job, head, answer, factor, order, total, like):
    """Put one head's queries [T, no-rope | rope] into the latent space."""
    stay_whole()
    num_rows, latent_dim = job.num_rows, model.latent_dim
    together = heads_together(job)
    maps = stack_at(
        layer.heads, model.num_heads, model.nope_dim + model.value_dim, latent_dim, like
    )
    turn = floats_at(job.turn, num_rows, model.rope_dim)
    query = heads_at(
        job.query, job, model.num_heads, head // together, latent_dim + model.rope_dim, like
    )
    for t in range(num_rows):
        for i in range(model.nope_dim):
            factor[t, i] = answer[t, i]
    weigh_rows(factor, maps[head], order, model.nope_dim, total)
    for t in range(num_rows):
        mine = query[t, head % together]
        copy_row(total[t], mine)
        rotate(answer[t], model.nope_dim, turn[t], mine, latent_dim)


@phase_part
def rotate_front(value, turn, out):
    """out = value, its first part rotated."""
    rotate(value, 0, turn, out, 0)
    for i in range(len(turn), len(out)):
        out[i] = narrow(value[i], out)


@phase_part
def write_latents(model, layer, job, low, like, pool_like):
    """Write the normed latents and the rotated shared keys into their slots, if they have any."""
    stay_whole()
    num_rows, latent_dim = job.num_rows, model.latent_dim
    slot = integers_at(job.write_slots, 1, num_rows)[0]
    turn = floats_at(job.turn, num_rows, model.rope_dim)
    normed = floats(num_rows, latent_dim)
    rows = floats(num_rows, latent_dim + model.rope_dim)
    weight = vector_at(layer.kv_norm, latent_dim, like)
    rms_norm(low, model.q_rank, weight, np.float32(model.low_eps), normed)
    for t in range(num_rows):
        copy_row(normed[t], rows[t])
        rotate(low[t], model.q_rank + latent_dim, turn[t], rows[t], latent_dim)
    write_pages(layer.pool, job.num_slots, pool_like, rows, slot, model.page_tokens)


@phase_part
def write_index_keys(model, layer, job, low, like, key_like):
    """Write index keys, layer-normed and rotated; make the index heads' weights."""
    stay_whole()
    num_rows, width = job.num_rows, model.index_dim
    slot = integers_at(job.write_slots, 1, num_rows)[0]
    turn = floats_at(job.turn, num_rows, model.rope_dim)
    gain, shift = vector_at(layer.index_norm, width, like), vector_at(layer.index_bias, width, like)
    head_weight = floats_at(job.head_weight, num_rows, model.index_heads)
    key, rows = np.empty(width, np.float32), floats(num_rows, width)
    first = model.q_rank + model.latent_dim + model.rope_dim
    for t in range(num_rows):
        mean = square = ZERO
        for i in range(width):
            mean += low[t, first + i]
        mean /= np.float32(width)
        for i in range(width):
            square += (low[t, first + i] - mean) ** 2
        factor = ONE / np.sqrt(square / np.float32(width) + np.float32(model.index_eps))
        for i in range(width):
            key[i] = (low[t, first + i] - mean) * factor * widen(gain[i]) + widen(shift[i])
        rotate_front(key, turn[t], rows[t])
        for j in range(model.index_heads):
            head_weight[t, j] = low[t, first + width + j] * np.float32(model.index_scale)
    write_pages(layer.index_pool, job.num_slots, key_like, rows, slot, model.page_tokens)


@phase_part
def select(model, layer, job, board, phase, like, pool_like, key_like):
    """chosen[t] = the positions that row t may see, of the best index scores."""
    stay_whole()
    num_rows = job.num_rows
    query = stack_at(job.index_query, num_rows, model.index_heads, model.index_dim, like)
    head_weight = floats_at(job.head_weight, num_rows, model.index_heads)
    page_table = integers_at(job.page_table, num_rows, job.num_columns)
    read_len = integers_at(job.read_len, 1, num_rows)[0]
    chosen = integers_at(job.chosen, num_rows, model.top_k)
    row = np.arange(num_rows)
    score = floats(1, job.longest)
    t = claim(board, phase)
    while t < num_rows:
        mine = slice(t, t + 1)
        if not score_pages(
            layer.index_pool,
            job.num_slots,
            key_like,
            query,
            head_weight,
            row[mine],
            page_table[mine],
            read_len[mine],
            model.page_tokens,
            score,
        ):
            job.is_broken = 1
        choose_best(score[0], read_len[t], chosen[t])
        finish(board, phase)
        t = claim(board, phase)
    await_units(board, phase, num_rows)


@phase_part
def attend(model, layer, job, board, phase, like, pool_like, key_like):
    """sums = the latent sums of the rows' heads."""
    stay_whole()
    num_rows, latent_dim = job.num_rows, model.latent_dim
    width = latent_dim + model.rope_dim
    num_groups = num_blocks(model.num_heads, heads_together(job))
    num_units = num_rows * num_groups
    page_table = integers_at(job.page_table, num_rows, job.num_columns)
    read_len = integers_at(job.read_len, 1, num_rows)[0]
    num_chosen = model.top_k if job.longest > model.top_k else 0
    chosen = integers_at(job.chosen, num_rows, num_chosen)
    row = np.arange(num_rows)
    unit = claim(board, phase)
    while unit < num_units:
        t, group = unit // num_groups, unit % num_groups
        mine = slice(t, t + 1)
        if not attend_pages(
            layer.pool,
            job.num_slots,
            pool_like,
            heads_at(job.query, job, model.num_heads, group, width, like),
            row[mine],
            page_table[mine],
            read_len[mine],
            chosen,
            model.page_tokens,
            np.float32(model.scale),
            heads_at(job.sums, job, model.num_heads, group, latent_dim, like),
        ):
            job.is_broken = 1
        finish(board, phase)
        unit = claim(board, phase)
    await_units(board, phase, num_units)


@phase_part
def expand(model, layer, job, board, phase, like, pool_like, key_like):
    """value[t, n] = the values of head n of its latent sums."""
    stay_whole()
    num_rows, num_heads, value_dim = job.num_rows, model.num_heads, model.value_dim
    maps = stack_at(layer.heads, num_heads, model.nope_dim + value_dim, model.latent_dim, like)
    together = heads_together(job)
    value = matrix_at(job.value, num_rows, num_heads * value_dim, like)
    mine = values(num_rows, model.latent_dim, like)
    answer = floats(num_rows, value_dim)
    n = claim(board, phase)
    while n < num_heads:
        sums = heads_at(job.sums, job, num_heads, n // together, model.latent_dim, like)
        for t in range(num_rows):
            copy_row(sums[t, n % together], mine[t])
        product(mine, maps[n, model.nope_dim :], answer)
        for t in range(num_rows):
            for i in range(value_dim):
                value[t, n * value_dim + i] = narrow(answer[t, i], value)
        finish(board, phase)
        n = claim(board, phase)
    await_units(board, phase, num_heads)


@phase_part
def project_out(model, layer, job, board, phase, like, pool_like, key_like):
    """x += value @ output.T"""
    stay_whole()
    num_rows, width = job.num_rows, model.num_heads * model.value_dim
    x = floats_at(job.x, num_rows, model.hidden_dim)
    value = matrix_at(job.value, num_rows, width, like)
    output = matrix_at(layer.output, model.hidden_dim, width, like)
    answer = floats(num_rows, NARROW_BLOCK)
    num_units = num_blocks(model.hidden_dim, NARROW_BLOCK)
    unit = claim(board, phase)
    while unit < num_units:
        first = unit * NARROW_BLOCK
        last = min(first + NARROW_BLOCK, model.hidden_dim)
        product(value, output[first:last], answer)
        for t in range(num_rows):
            for o in range(last - first):
                x[t, first + o] += answer[t, o]
        finish(board, phase)
        unit = claim(board, phase)
    await_units(board, phase, num_units)
