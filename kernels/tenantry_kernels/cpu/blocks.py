"""What compiled loops are made of that numba has no words for: blocks of products in registers.

Each is an intrinsic: written in LLVM's own operations, put in line where a loop calls it. A block
of sums stays in registers while its inputs stream by, and BF16 dot products use the processor's own
instruction where it has one. A sum's order does not depend on what else its block computes: a row
gets the same bits in any block.

Arrays hold float32, or BF16 as uint16 (`bits`); their last axis is contiguous.
"""

# what numba compiles has the types of its first call; what builds LLVM's code has its own
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

LANES = 16
"""Float32 values in a vector; where the processor's are shorter, LLVM divides them."""
STEP = 2 * LANES
"""What widths must be multiples of to be taken in blocks: one vector of BF16."""
AHEAD = 8192
"""Bytes from what dot products read to what they ask for: of 0 to 16384 among the fastest.

Processors foresee less where rows are short; weights come up to 40% faster than without.
"""

_I16, _I32, _I64, _F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_VECTOR = ir.VectorType(_F32, LANES)


class _BFloat(ir.Type):  # type: ignore[misc]  # llvmlite is not annotated
    """LLVM's BF16, which llvmlite does not name."""

    def _to_string(self):
        return "bfloat"

    def __eq__(self, other):
        return isinstance(other, _BFloat)

    def __hash__(self):
        return hash(_BFloat)


_BFLOATS = ir.VectorType(_BFloat(), STEP)


@intrinsic
def widen(typingctx, value):
    """Return a float32, given it or the bits of a BF16."""
    if value not in (types.float32, types.uint16):
        raise TypingError(f"{value} is neither float32 nor BF16 as uint16")
    return types.float32(value), lambda _, builder, __, args: _widened(builder, args[0])


@intrinsic
def narrow(typingctx, value, array):
    """Return a float32 as `array` holds it: as it is, or the bits of the nearest BF16."""
    return array.dtype(value, array), lambda _, builder, __, args: _stored_as(
        builder, args[0], array.dtype
    )


@intrinsic
def float_of(typingctx, word):
    """Return the float32 with these 32 bits."""
    return types.float32(types.int32), lambda _, builder, __, args: builder.bitcast(args[0], _F32)


@intrinsic
def stay_whole(typingctx):
    """Keep the function that calls this from being copied into its callers, which costs compile time."""

    def code(context, builder, signature, args):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), code


def dots(num_rows, num_outs):
    """Return the block out[row + r, column + o] = x[t + r] . weight[at[o]], r < num_rows, o < num_outs.

    Call it with (x, t, weight, at, out, row, column), where `at` is a tuple; at most 16 sums.
    """

    @intrinsic
    def block(typingctx, x, t, weight, at, out, row, column):
        index = types.int64
        signature = types.void(x, index, weight, types.UniTuple(index, num_outs), out, index, index)

        def code(context, builder, signature, args):
            x_rows = _rows(context, builder, x, args[0], args[1], num_rows)
            w_rows = [
                row_address(context, builder, weight, args[2], builder.extract_value(args[3], o))
                for o in range(num_outs)
            ]
            width = _length(context, builder, x, args[0])
            sums = _zeros(builder, num_rows * num_outs)
            is_paired = x.dtype == weight.dtype == types.uint16 and _has_bf16_dots(context)
            step = STEP if is_paired else LANES
            load, add = (_pairs, _add_paired) if is_paired else (_floats, _add)
            with cgutils.for_range_slice(builder, _I64(0), width, _I64(step), _I64) as (i, _):
                xs = [load(builder, p, i) for p in x_rows]
                ws = [load(builder, p, i) for p in w_rows]
                for p in w_rows:
                    _prefetch(builder, p, i, _I64(AHEAD))
                for n, total in enumerate(sums):
                    add(builder, xs[n // num_outs], ws[n % num_outs], total)
            lanes = _stored_as(builder, _sum_lanes(builder, sums), out.dtype)
            o_rows = _rows(context, builder, out, args[4], args[5], num_rows)
            for n in range(len(sums)):
                column = builder.add(args[6], _I64(n % num_outs))
                value = builder.extract_element(lanes, _I32(n))
                builder.store(value, builder.gep(o_rows[n // num_outs], [column]))
            return context.get_dummy_value()

        return signature, code

    return block


def weighted_rows(num_rows, num_vectors):
    """Return the block out[t + r, i] += sum over k of weight[t + r, k] * values[at[k], i].

    k runs from `first` to `last`, i over the `num_vectors` * LANES values from `column` on. Call it
    with (weight, t, values, at, first, last, column, out); weight and out are float32.
    """

    @intrinsic
    def block(typingctx, weight, t, values, at, first, last, column, out):
        index = types.int64
        signature = types.void(weight, index, values, at, index, index, index, out)

        def code(context, builder, signature, args):
            weights = _rows(context, builder, weight, args[0], args[1], num_rows)
            order = row_address(context, builder, at, args[3], _I64(0))
            o_rows = _rows(context, builder, out, args[7], args[1], num_rows)
            offsets = [builder.add(args[6], _I64(v * LANES)) for v in range(num_vectors)]
            places = [(r, offset) for r in range(num_rows) for offset in offsets]
            sums = _zeros(builder, len(places))
            # as many rows on as this block takes: where they follow one another, the next block's
            stride = _stride(context, builder, values, args[2])
            next_rows = builder.mul(stride, builder.sub(args[5], args[4]))
            for (r, offset), total in zip(places, sums, strict=True):
                builder.store(_floats(builder, o_rows[r], offset), total)
            with cgutils.for_range_slice(builder, args[4], args[5], _I64(1), _I64) as (k, _):
                slot = builder.load(builder.gep(order, [k]))
                source = row_address(context, builder, values, args[2], slot)
                vectors = [_floats(builder, source, offset) for offset in offsets]
                for offset in offsets[::2]:
                    _prefetch(builder, source, offset, next_rows)
                for r in range(num_rows):
                    factor = builder.load(builder.gep(weights[r], [k]))
                    spread = _spread(builder, factor)
                    for v, vector in enumerate(vectors):
                        _add(builder, spread, vector, sums[r * num_vectors + v])
            for (r, offset), total in zip(places, sums, strict=True):
                builder.store(
                    builder.load(total), _vector_at(builder, o_rows[r], offset, LANES), align=4
                )
            return context.get_dummy_value()

        return signature, code

    return block


def _has_bf16_dots(context):
    return "+avx512bf16" in context.codegen().magic_tuple()[2].split(",")


def _length(context, builder, kind, array):
    struct = context.make_array(kind)(context, builder, array)
    return cgutils.unpack_tuple(builder, struct.shape, kind.ndim)[-1]


def _stride(context, builder, kind, array):
    struct = context.make_array(kind)(context, builder, array)
    return cgutils.unpack_tuple(builder, struct.strides, kind.ndim)[0]


def row_address(context, builder, kind, array, index):
    """Return the address of row `index`, or of a vector's first value."""
    struct = context.make_array(kind)(context, builder, array)
    stride = _stride(context, builder, kind, array)
    start = builder.bitcast(struct.data, ir.IntType(8).as_pointer())
    return builder.bitcast(builder.gep(start, [builder.mul(index, stride)]), struct.data.type)


def _rows(context, builder, kind, array, first, number):
    return [
        row_address(context, builder, kind, array, builder.add(first, _I64(r)))
        for r in range(number)
    ]


def _vector_at(builder, row, i, length):
    vector = ir.VectorType(row.type.pointee, length)
    return builder.bitcast(builder.gep(row, [i]), vector.as_pointer())


def _floats(builder, row, i):
    align = 4 if row.type.pointee == _F32 else 2
    return _widened(builder, builder.load(_vector_at(builder, row, i, LANES), align=align))


def _pairs(builder, row, i):
    return builder.bitcast(builder.load(_vector_at(builder, row, i, STEP), align=2), _BFLOATS)


def _zeros(builder, number):
    """Return registers for sums, as memory that LLVM finds it does not need."""
    sums = [cgutils.alloca_once(builder, _VECTOR) for _ in range(number)]
    for total in sums:
        builder.store(ir.Constant(_VECTOR, [0.0] * LANES), total)
    return sums


def _add(builder, a, b, total):
    # fused where the processor can
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
    builder.store(builder.call(fused, [a, b, builder.load(total)]), total)


def _add_paired(builder, a, b, total):
    kind = ir.FunctionType(_VECTOR, [_VECTOR, _BFLOATS, _BFLOATS])
    dot = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512bf16.dpbf16ps.512")
    builder.store(builder.call(dot, [builder.load(total), a, b]), total)


def _prefetch(builder, row, i, distance):
    """Ask for what lies `distance` bytes on; it is not read, so it may be past all memory."""
    place = builder.bitcast(builder.gep(row, [i]), ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [place.type, _I32, _I32, _I32])
    fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    # for reading, to stay in all caches, as data
    builder.call(fetch, [builder.gep(place, [distance]), _I32(0), _I32(3), _I32(1)])


def _spread(builder, value):
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, _I32(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


def _sum_lanes(builder, sums):
    """Return a vector whose lane n is the sum of all lanes of sums[n], for at most LANES of them."""
    vectors = [builder.load(total) for total in sums]
    halves = [
        ir.Constant(ir.VectorType(_I32, LANES), list(range(start, 2 * LANES, 2)))
        for start in (0, 1)
    ]
    # each round halves what stands for one sum, and the number of vectors while there are several
    for _ in range(LANES.bit_length() - 1):
        pairs = [
            (vectors[n], vectors[min(n + 1, len(vectors) - 1)]) for n in range(0, len(vectors), 2)
        ]
        vectors = [
            builder.fadd(*(builder.shuffle_vector(a, b, half) for half in halves)) for a, b in pairs
        ]
    return vectors[0]


def _widened(builder, value):
    """Return float32 of float32 or of BF16's bits, one or a vector."""
    if value.type in (_F32, _VECTOR):
        return value
    is_one = value.type == _I16
    word, result = (_I32, _F32) if is_one else (ir.VectorType(_I32, LANES), _VECTOR)
    shift = ir.Constant(word, 16 if is_one else [16] * LANES)
    return builder.bitcast(builder.shl(builder.zext(value, word), shift), result)


def _stored_as(builder, value, dtype):
    """Return float32, one or a vector, as an array of `dtype` holds it."""
    if dtype == types.float32:
        return value
    is_one = value.type == _F32
    word = _I32 if is_one else ir.VectorType(_I32, LANES)
    half = _I16 if is_one else ir.VectorType(_I16, LANES)

    def same(number):
        return ir.Constant(word, number if is_one else [number] * LANES)

    bits = builder.bitcast(value, word)
    upper = builder.lshr(bits, same(16))
    # to nearest, ties to even; the bits of not-a-number could overflow, so one bit of it is set
    nearest = builder.lshr(
        builder.add(bits, builder.add(same(0x7FFF), builder.and_(upper, same(1)))), same(16)
    )
    is_nan = builder.fcmp_unordered("uno", value, value)
    return builder.trunc(builder.select(is_nan, builder.or_(upper, same(0x40)), nearest), half)
