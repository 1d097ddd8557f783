"""How threads share out a job: its phases one after the other, the units of a phase to whoever comes.

A thread claims units until there are none, then waits until those that others claimed are done. So
one that comes late, or never, delays nobody; only one that is stopped amid a unit does. Nothing
depends on who computes a unit.

| state of a helper's gate | set by | means |
|---|---|---|
| IDLE | both | it looks for work |
| ASLEEP | helper | it waits on its eventfd |
| OPEN | caller | there is a job, which it may join |
| JOINED | helper | it works; the caller must not return |
| DISMISSED | caller | it must end |
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from .blocks import row_address
from .compiler import compiled

LINE = 16
"""Int64s between counters: two cache lines, which processors fetch together."""
GATE = 8
IDLE, ASLEEP, OPEN, JOINED, DISMISSED = range(5)
SPINS = 1000
"""Looks at a word, some 20 us, before the processor is given to others."""

_read = types.ExternalFunction("read", types.int64(types.int32, types.int64, types.uint64))
_write = types.ExternalFunction("write", types.int64(types.int32, types.int64, types.uint64))
_yield_processor = types.ExternalFunction("sched_yield", types.int32())


def _word(context, builder, signature, args):
    return row_address(context, builder, signature.args[0], args[0], args[1])


@intrinsic
def add_atomic(typingctx, words, index, value):
    """Add to a word; return what it was."""

    def code(context, builder, signature, args):
        word = _word(context, builder, signature, args)
        return builder.atomic_rmw("add", word, args[2], "acq_rel")

    return types.int64(words, types.int64, types.int64), code


@intrinsic
def exchange(typingctx, words, index, value):
    """Set a word; return what it was."""

    def code(context, builder, signature, args):
        word = _word(context, builder, signature, args)
        return builder.atomic_rmw("xchg", word, args[2], "acq_rel")

    return types.int64(words, types.int64, types.int64), code


@intrinsic
def replace(typingctx, words, index, old, new):
    """Set a word to `new` if it is `old`; return whether it was."""

    def code(context, builder, signature, args):
        word = _word(context, builder, signature, args)
        result = builder.cmpxchg(word, args[2], args[3], "acq_rel", "acquire")
        return builder.extract_value(result, 1)

    return types.boolean(words, types.int64, types.int64, types.int64), code


@intrinsic
def look(typingctx, words, index):
    """Return a word, and see all that was written before it was set."""

    def code(context, builder, signature, args):
        return builder.load_atomic(_word(context, builder, signature, args), "acquire", 8)

    return types.int64(words, types.int64), code


@intrinsic
def rest(typingctx):
    """Tell the processor that this is a loop that waits."""

    def code(context, builder, signature, args):
        if context.codegen().magic_tuple()[0].startswith("x86_64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            pause = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause")
            builder.call(pause, [])
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def call_at(typingctx, address, model, layer, job, board, phase, like, pool_like, key_like):
    """Call the phase of a job whose code is at an address."""
    arguments = (model, layer, job, board, types.int64, like, pool_like, key_like)

    def code(context, builder, signature, args):
        kind = context.call_conv.get_function_type(types.none, arguments)
        phase_code = builder.inttoptr(args[0], kind.as_pointer())
        status, _ = context.call_conv.call_function(
            builder, phase_code, types.none, arguments, args[1:]
        )
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.void(types.int64, *arguments), code


def _pointer_to(kind):
    @intrinsic
    def pointer(typingctx, address):
        def code(context, builder, signature, args):
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), code

    return pointer


@intrinsic
def _pointer_like(typingctx, address, like):
    def code(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(like.dtype)(types.int64, like), code


_float_pointer, _integer_pointer = _pointer_to(types.float32), _pointer_to(types.int64)


@compiled
def floats_at(address, num_rows, width):
    """Return float32 memory as an array [num_rows, width]."""
    return carray(_float_pointer(address), (num_rows, width))


@compiled
def integers_at(address, num_rows, width):
    """Return int64 memory as an array [num_rows, width]."""
    return carray(_integer_pointer(address), (num_rows, width))


@compiled
def vector_at(address, length, like):
    """Return memory of `like`'s dtype as an array [length]."""
    return carray(_pointer_like(address, like), (length,))


@compiled
def matrix_at(address, num_rows, width, like):
    """Return memory of `like`'s dtype as an array [num_rows, width]."""
    return carray(_pointer_like(address, like), (num_rows, width))


@compiled
def stack_at(address, depth, num_rows, width, like):
    """Return memory of `like`'s dtype as an array [depth, num_rows, width]."""
    return carray(_pointer_like(address, like), (depth, num_rows, width))


@compiled
def claim(board, phase):
    """Return the number of a unit of `phase` that is now this thread's to do, if it has so many."""
    return add_atomic(board, phase * 2 * LINE, 1)


@compiled
def finish(board, phase):
    """Say that a claimed unit is done."""
    add_atomic(board, (phase * 2 + 1) * LINE, 1)


@compiled
def await_units(board, phase, num_units):
    """Wait until all units are done."""
    spins = 0
    while look(board, (phase * 2 + 1) * LINE) < num_units:
        spins += 1
        if spins < SPINS:
            rest()
        else:
            _yield_processor()


@compiled
def open_gates(gates, bells):
    """Let the helpers join the job that is now described; wake those asleep by their eventfds."""
    one = np.ones(1, np.int64)
    for n in range(len(bells)):
        if exchange(gates, n * GATE, OPEN) == ASLEEP:
            _write(bells[n], one.ctypes.data, 8)


@compiled
def close_gates(gates):
    """Let no helper join any more; wait for those that did."""
    for n in range(len(gates) // GATE):
        spins = 0
        if not replace(gates, n * GATE, OPEN, IDLE):
            while look(gates, n * GATE) == JOINED:
                spins += 1
                if spins < SPINS:
                    rest()
                else:
                    _yield_processor()


@compiled
def await_job(gates, helper, bell):
    """Wait until there is a job, and join it. False when the helper is dismissed."""
    count = np.zeros(1, np.int64)
    spins = 0
    while True:
        state = look(gates, helper * GATE)
        if state == DISMISSED:
            return False
        if state == OPEN and replace(gates, helper * GATE, OPEN, JOINED):
            return True
        spins += 1
        if spins < SPINS:
            rest()
        # a signal may have ended its sleep
        elif state == ASLEEP or replace(gates, helper * GATE, IDLE, ASLEEP):
            _read(bell, count.ctypes.data, 8)
            spins = 0


@compiled
def leave_job(gates, helper):
    """Say that a helper's part is done."""
    exchange(gates, helper * GATE, IDLE)
