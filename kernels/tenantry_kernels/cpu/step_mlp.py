"""The phases of a decode step after a layer's attention (`step`)."""

# what numba compiles has the types of its first call
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np

from .blocks import narrow, stay_whole
from .kernels import ONE, exp, product, route
from .shares import await_units, claim, finish, floats_at, integers_at, matrix_at, stack_at
from .step_parts import NARROW_BLOCK, floats, norm_x, num_blocks, phase_part, values

BASE = "083bc27e4093358bf48513a5fdc94dfe"
"""The first half of the SHA-256 of the files that this one is made of (`step`)."""


@phase_part
def gate_shared(model, layer, job, board, phase, like, pool_like, key_like):
    """shared = the gated values of the MLP that all rows pass; choose the routed experts beside it."""
    stay_whole()
    num_rows, hidden, width = job.num_rows, model.hidden_dim, layer.mlp_dim
    num_routers = 1 if layer.router else 0
    num_units = num_routers + num_blocks(width, NARROW_BLOCK)
    normed = values(num_rows, hidden, like)
    gate_up = matrix_at(layer.gate_up, 2 * width, hidden, like)
    shared = matrix_at(job.shared, num_rows, width, like)
    gate, up = (
        floats(num_rows, NARROW_BLOCK),
        floats(num_rows, NARROW_BLOCK),
    )
    unit = claim(board, phase)
    if unit < num_units:
        norm_x(model, layer.mlp_norm, job, normed, like)
    while unit < num_units:
        if unit < num_routers:
            choose_experts(model, layer, job, normed)
        else:
            gate_block(normed, gate_up, unit - num_routers, gate, up, shared)
        finish(board, phase)
        unit = claim(board, phase)
    await_units(board, phase, num_units)


@phase_part
def gate_block(x, gate_up, block, gate, up, out):
    """out[t, i] = silu(gate) * up for the values i of a block. gate_up: [2 I, H]; out: [T, I]."""
    stay_whole()
    width = gate_up.shape[0] // 2
    first = block * NARROW_BLOCK
    last = min(first + NARROW_BLOCK, width)
    product(x, gate_up[first:last], gate)
    product(x, gate_up[width + first : width + last], up)
    for t in range(x.shape[0]):
        for i in range(last - first):
            g = gate[t, i]
            out[t, first + i] = narrow(g / (ONE + exp(-g)) * up[t, i], out)


@phase_part
def choose_experts(model, layer, job, normed):
    """List the pairs of row and choice by expert.

    pair: [2, T * K], of each its row and the bits of its weight; start: [E + 1]; used: [1 + E],
    the number of experts that have any, and those.
    """
    stay_whole()
    num_rows, num_choices, num_experts = job.num_rows, model.num_choices, model.num_experts
    expert = np.empty((num_rows, num_choices), np.int64)
    factor = floats(num_rows, num_choices)
    route(
        normed,
        floats_at(layer.router, num_experts, model.hidden_dim),
        floats_at(layer.router_bias, 1, num_experts)[0],
        model.num_groups,
        model.num_kept,
        np.float32(model.routed_scaling),
        model.is_normalized != 0,
        expert,
        factor,
    )
    pair_row = integers_at(job.pair_row, 1, num_rows * num_choices)[0]
    pair_factor = floats_at(job.pair_factor, 1, num_rows * num_choices)[0]
    start = integers_at(job.start, 1, num_experts + 1)[0]
    used = integers_at(job.used, 1, num_experts + 1)[0]
    n = 0
    used[0] = 0
    for e in range(num_experts):
        start[e] = n
        for t in range(num_rows):
            for k in range(num_choices):
                if expert[t, k] == e:
                    pair_row[n], pair_factor[n] = t, factor[t, k]
                    n += 1
        if n > start[e]:
            used[0] += 1
            used[used[0]] = e
    start[num_experts] = n


@phase_part
def gate_experts(model, layer, job, board, phase, like, pool_like, key_like):
    """gated[pair] = the gated values of the routed experts."""
    stay_whole()
    num_rows, hidden, width = job.num_rows, model.hidden_dim, model.expert_dim
    num_pairs = num_rows * model.num_choices
    pair_row = integers_at(job.pair_row, 1, num_pairs)[0]
    start = integers_at(job.start, 1, model.num_experts + 1)[0]
    used = integers_at(job.used, 1, model.num_experts + 1)[0]
    gate_up = stack_at(layer.experts_gate_up, model.num_experts, 2 * width, hidden, like)
    gated = matrix_at(job.gated, num_pairs, width, like)
    normed, mine = (
        values(num_rows, hidden, like),
        values(num_rows, hidden, like),
    )
    gate, up = (
        floats(num_rows, NARROW_BLOCK),
        floats(num_rows, NARROW_BLOCK),
    )
    num_each = num_blocks(width, NARROW_BLOCK)
    # as many as there can be, lest a late thread take a later layer's number for this one's
    num_units = min(num_pairs, model.num_experts) * num_each
    unit = claim(board, phase)
    if unit < num_units:
        norm_x(model, layer.mlp_norm, job, normed, like)
    while unit < num_units:
        if unit // num_each < used[0]:
            e = used[1 + unit // num_each]
            first, last = start[e], start[e + 1]
            for n in range(first, last):
                source = normed[pair_row[n]]
                for i in range(hidden):
                    mine[n - first, i] = source[i]
            block = unit % num_each
            gate_block(mine[: last - first], gate_up[e], block, gate, up, gated[first:last])
        finish(board, phase)
        unit = claim(board, phase)
    await_units(board, phase, num_units)


@phase_part
def add_mlp(model, layer, job, board, phase, like, pool_like, key_like):
    """x += what the shared MLP and the routed experts make of their gated values."""
    stay_whole()
    num_rows, hidden = job.num_rows, model.hidden_dim
    num_pairs = num_rows * model.num_choices
    x = floats_at(job.x, num_rows, hidden)
    shared = matrix_at(job.shared, num_rows, layer.mlp_dim, like)
    gated = matrix_at(job.gated, num_pairs, model.expert_dim, like)
    down = matrix_at(layer.mlp_down, hidden, layer.mlp_dim, like)
    experts = stack_at(layer.experts_down, model.num_experts, hidden, model.expert_dim, like)
    pair_row = integers_at(job.pair_row, 1, num_pairs)[0]
    pair_factor = floats_at(job.pair_factor, 1, num_pairs)[0]
    start = integers_at(job.start, 1, model.num_experts + 1)[0]
    used = integers_at(job.used, 1, model.num_experts + 1)[0]
    answer = floats(num_rows, NARROW_BLOCK)
    total = floats(num_rows, NARROW_BLOCK)
    num_units = num_blocks(hidden, NARROW_BLOCK)
    unit = claim(board, phase)
    while unit < num_units:
        low = unit * NARROW_BLOCK
        high = min(low + NARROW_BLOCK, hidden)
        product(shared, down[low:high], total)
        for n in range(used[0] if layer.router else 0):
            e = used[1 + n]
            first, last = start[e], start[e + 1]
            product(gated[first:last], experts[e, low:high], answer)
            for m in range(first, last):
                t, factor = pair_row[m], pair_factor[m]
                for o in range(high - low):
                    total[t, o] += factor * answer[m - first, o]
        for t in range(num_rows):
            for o in range(high - low):
                x[t, low + o] += total[t, o]
        finish(board, phase)
        unit = claim(board, phase)
    await_units(board, phase, num_units)
