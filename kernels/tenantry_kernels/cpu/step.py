"""A decode step of a whole model in one call: one row of each sequence through all layers.

Every phase (a loop over layers, with a few phases each) is divided into units that threads claim
(`shares`); what crosses from one to the next lies in the job's buffers. Norms are so small that each
thread computes them for itself. Activations stay float32 but where they are multiplied by weights:
there they have the weights' dtype. A row's bits do not depend on other rows, nor on the threads.

Arguments: `model`, `layer` and `job` are records (`decode`) of numbers and addresses; `like`,
`pool_like` and `key_like` are empty arrays of the dtype of weights, latents' and index keys' pages.
T rows, E experts, K choices, N heads, J index heads.

numba's cache notices a change of a loop's own file only: `BASE` in each of these files names the
content of those that it is made of, and a test holds them together.
"""

# what numba compiles has the types of its first call
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import math

import numpy as np

from .blocks import stay_whole
from .compiler import compiled
from .kernels import copy_row, rms_norm
from .shares import (
    await_job,
    await_units,
    call_at,
    claim,
    close_gates,
    finish,
    floats_at,
    integers_at,
    leave_job,
    matrix_at,
    open_gates,
    vector_at,
)
from .step_attention import attend, expand, project_down, project_heads, project_out, select
from .step_mlp import add_mlp, gate_experts, gate_shared
from .step_parts import BLOCK, floats, multiply_block, num_blocks, phase_part

BASE = "083bc27e4093358bf48513a5fdc94dfe"
"""The first half of the SHA-256 of the files that this one is made of."""

STEP_JOB, PRODUCT_JOB = range(2)
MULTIPLY, EMBED, PUT_OUT, FIRST_OF_LAYER = range(4)
PROJECT_HEADS, SELECT, ATTEND, GATE_EXPERTS = 4, 5, 6, 10
"""Places in `PHASES`."""
ON_PAGES = (PROJECT_HEADS, SELECT, ATTEND)
"""Others are given the weights' dtype for the pages', so that they are compiled once for all."""
LEADER = -1
"""In place of a helper's number."""


@compiled
def work(helper, bells, gates, calls, models, layers, jobs, board, like, pool_like, key_like):
    """Do the job that `jobs` describes with what helpers there are; False if it names what is not there.

    A helper instead takes part in every job until it is dismissed. calls: the phases' addresses, in
    the order of `PHASES`. Linked into one function they would be optimized once more.
    """
    if helper == LEADER:
        board[:] = 0
        jobs[0].is_broken = 0
        open_gates(gates, bells)
    while helper == LEADER or await_job(gates, helper, bells[0]):
        take_part(calls, models[0], layers, jobs[0], board, like, pool_like, key_like)
        if helper == LEADER:
            close_gates(gates)
            return jobs[0].is_broken == 0
        leave_job(gates, helper)
    return True


@phase_part
def take_part(calls, model, layers, job, board, like, pool_like, key_like):
    """Do what is left of a job."""
    if job.kind == PRODUCT_JOB:
        call_at(calls[MULTIPLY], model, layers[0], job, board, 0, like, like, like)
        return
    call_at(calls[EMBED], model, layers[0], job, board, 0, like, like, like)
    phase = 1
    for n in range(len(layers)):
        layer = layers[n]
        for call in range(FIRST_OF_LAYER, len(calls)):
            if call == SELECT and (layer.index_keys == 0 or job.longest <= model.top_k):
                continue
            if call == GATE_EXPERTS and layer.router == 0:
                continue
            if call in ON_PAGES:
                call_at(calls[call], model, layer, job, board, phase, like, pool_like, key_like)
            else:
                call_at(calls[call], model, layer, job, board, phase, like, like, like)
            phase += 1
    call_at(calls[PUT_OUT], model, layers[0], job, board, phase, like, like, like)


@phase_part
def multiply(model, layer, job, board, phase, like, pool_like, key_like):
    """out = x @ weight.T. x: [T, I]; weight: [O, I]; out: float32 [T, O]."""
    stay_whole()
    num_rows = job.num_rows
    x = matrix_at(job.input, num_rows, job.num_in, like)
    weight = matrix_at(job.weight, job.num_out, job.num_in, like)
    out = floats_at(job.out, num_rows, job.num_out)
    answer = floats(num_rows, BLOCK)
    num_units = num_blocks(job.num_out, BLOCK)
    unit = claim(board, phase)
    while unit < num_units:
        multiply_block(x, weight, unit, answer, out, 0)
        finish(board, phase)
        unit = claim(board, phase)
    await_units(board, phase, num_units)


@phase_part
def embed(model, layer, job, board, phase, like, pool_like, key_like):
    """x = the tokens' embeddings; turn = cosines and sines of their positions' angles."""
    stay_whole()
    num_rows, half = job.num_rows, model.rope_dim // 2
    token = integers_at(job.tokens, 1, num_rows)[0]
    position = integers_at(job.positions, 1, num_rows)[0]
    embedding = matrix_at(model.embedding, model.vocab_size, model.hidden_dim, like)
    frequency = floats_at(model.frequencies, 1, half)[0]
    x = floats_at(job.x, num_rows, model.hidden_dim)
    turn = floats_at(job.turn, num_rows, model.rope_dim)
    t = claim(board, phase)
    while t < num_rows:
        if 0 <= token[t] < model.vocab_size:
            copy_row(embedding[token[t]], x[t])
        else:
            job.is_broken = 1
        for i in range(half):
            angle = np.float32(position[t]) * frequency[i]
            turn[t, i] = math.cos(angle)
            turn[t, half + i] = math.sin(angle)
        finish(board, phase)
        t = claim(board, phase)
    await_units(board, phase, num_rows)


@phase_part
def put_out(model, layer, job, board, phase, like, pool_like, key_like):
    """out[r] = the final norm of the wanted row r."""
    stay_whole()
    num_wanted, hidden = job.num_wanted, model.hidden_dim
    x = floats_at(job.x, job.num_rows, hidden)
    wanted = integers_at(job.wanted, 1, num_wanted)[0]
    out = matrix_at(job.out, num_wanted, hidden, like)
    weight = vector_at(model.norm, hidden, like)
    r = claim(board, phase)
    while r < num_wanted:
        t = wanted[r]
        rms_norm(x[t : t + 1], 0, weight, np.float32(model.norm_eps), out[r : r + 1])
        finish(board, phase)
        r = claim(board, phase)
    await_units(board, phase, num_wanted)


PHASES = (
    *(multiply, embed, put_out),
    *(project_down, project_heads, select, attend, expand, project_out),
    *(gate_shared, gate_experts, add_mlp),
)
"""All have the same arguments; the last nine are a layer's, in their order."""
