"""Triton's interpreter with the small float types made right; stock, it computes on their bits.

The interpreter keeps bf16 as uint16 and fp8 as uint8 arrays and hands them to numpy, so that sums,
products, reductions and dots of them are silently wrong, and its casts truncate and wrap. `mend`
replaces those operations: values are widened to float32, computed there, and rounded back as the
GPU does (to nearest even; e4m3 and e5m2 saturate, NaN stays). Dots accumulate in float32.

It also lets numpy overflow without a warning, as GPU arithmetic does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime import interpreter

Array = NDArray[Any]
# handles, builders and Triton's types carry no annotations
Handle = Any

_LARGEST: Final = {
    tl.float8e4nv: (torch.float8_e4m3fn, 448.0),
    tl.float8e5: (torch.float8_e5m2, 57344.0),
}
_FLOATS: Final = {tl.bfloat16, tl.float16, tl.float32, tl.float64, *_LARGEST}
_ON_BITS: Final = {
    np.bitwise_and,
    np.bitwise_or,
    np.bitwise_xor,
    np.left_shift,
    np.right_shift,
}


def mend() -> None:
    """Replace what is wrong in this process's interpreter; a second call changes nothing."""
    builder = interpreter.InterpreterBuilder
    if getattr(builder, "is_mended", False):
        return
    builder.is_mended = True
    _mend_arithmetic(builder)
    _mend_casts(builder)
    builder.create_dot = _dot
    builder.create_histogram = _histogram
    builder.get_bf16 = _constant_bf16
    for operations, names in (
        (interpreter.ReduceOps, ("min_max", "sum")),
        (interpreter.ScanOps, ("cumsum", "cumprod")),
    ):
        for name in names:
            setattr(operations, name, _widened(getattr(operations, name)))
    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_and_index(tensor: Any, scope: Any) -> None:
        # a loop's bound is an array of one value, which numpy no longer takes for a number
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_tensor_and_index
    run = interpreter.GridExecutor.__call__

    def quiet_run(self: Any, *args: Any, **kwargs: Any) -> None:
        with np.errstate(all="ignore"):
            run(self, *args, **kwargs)

    interpreter.GridExecutor.__call__ = quiet_run


def _is_small(kind: Any) -> bool:
    return kind == tl.bfloat16 or kind in _LARGEST


def _wide(handle: Handle) -> Array:
    """Return a handle's values, small floats as float32."""
    kind, stored = handle.dtype.scalar, handle.data
    if kind == tl.bfloat16:
        return np.asarray((stored.astype(np.uint32) << 16).view(np.float32))
    if kind in _LARGEST:
        codes = torch.arange(256, dtype=torch.uint8).view(_LARGEST[kind][0])
        return np.asarray(codes.float().numpy()[stored])
    return np.asarray(stored)


def _stored(values: Array, kind: Any) -> Array:
    """Return float values as the interpreter stores this type of float."""
    if not _is_small(kind):
        return values.astype(interpreter._get_np_dtype(kind))
    wide = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    if kind == tl.bfloat16:
        bits = wide.bfloat16().view(torch.uint16)
    else:
        small, largest = _LARGEST[kind]
        bits = wide.clamp(-largest, largest).to(small).view(torch.uint8)
    # ascontiguousarray makes an axis where there was none
    return bits.numpy().reshape(np.shape(values))


def _handle(values: Array, kind: Any) -> Handle:
    return interpreter.TensorHandle(_stored(values, kind), kind)


def _mend_arithmetic(builder: Any) -> None:
    stock_binary, stock_unary, stock_ternary, stock_fma = (
        builder.binary_op,
        builder.unary_op,
        builder.ternary_op,
        builder.create_fma,
    )

    def binary_op(self: Any, lhs: Handle, rhs: Handle, op: Callable[..., Array]) -> Handle:
        kind = lhs.dtype.scalar
        if not _is_small(kind) or op in _ON_BITS:
            return stock_binary(self, lhs, rhs, op)
        result = np.asarray(op(_wide(lhs), _wide(rhs)))
        if result.dtype == np.bool_:
            return interpreter.TensorHandle(result, tl.int1)
        return _handle(result, kind)

    def unary_op(self: Any, arg: Handle, op: Callable[..., Array]) -> Handle:
        kind = arg.dtype.scalar
        return _handle(op(_wide(arg)), kind) if _is_small(kind) else stock_unary(self, arg, op)

    def ternary_op(
        self: Any, first: Handle, second: Handle, third: Handle, op: Callable[..., Array]
    ) -> Handle:
        kind = third.dtype.scalar
        if not _is_small(kind) or op is np.where:
            return stock_ternary(self, first, second, third, op)
        return _handle(op(_wide(first), _wide(second), _wide(third)), kind)

    def create_fma(self: Any, x: Handle, y: Handle, z: Handle) -> Handle:
        kind = z.dtype.scalar
        if not _is_small(kind):
            return stock_fma(self, x, y, z)
        return _handle(_wide(x) * _wide(y) + _wide(z), kind)

    builder.binary_op, builder.unary_op = binary_op, unary_op
    builder.ternary_op, builder.create_fma = ternary_op, create_fma


def _mend_casts(builder: Any) -> None:
    stock_cast, stock_float_cast = builder.cast_impl, builder.create_fp_to_fp

    def cast_impl(self: Any, source: Handle, target_type: Any) -> Handle:
        target = target_type.scalar
        if _is_small(source.dtype.scalar) or _is_small(target):
            return _handle(_wide(source), target)
        return stock_cast(self, source, target_type)

    def create_fp_to_fp(self: Any, source: Handle, target_type: Any, rounding: Any) -> Handle:
        target = target_type.scalar
        to_nearest = rounding in (None, interpreter._ir.ROUNDING_MODE.RTNE)
        if to_nearest and {source.dtype.scalar, target} <= _FLOATS:
            return _handle(_wide(source), target)
        return stock_float_cast(self, source, target_type, rounding)

    builder.cast_impl, builder.create_fp_to_fp = cast_impl, create_fp_to_fp


def _dot(self: Any, a: Handle, b: Handle, c: Handle, *_precision: Any) -> Handle:
    lhs, rhs = _wide(a), _wide(b)
    if np.issubdtype(lhs.dtype, np.floating) and lhs.dtype != np.float64:
        lhs, rhs = lhs.astype(np.float32), rhs.astype(np.float32)
    product = np.matmul(lhs, rhs, dtype=np.result_type(lhs, c.data))
    return interpreter.TensorHandle((product + c.data).astype(c.data.dtype), c.dtype.scalar)


def _constant_bf16(self: Any, value: float) -> Handle:
    return _handle(np.array([value], dtype=np.float32), tl.bfloat16)


def _histogram(self: Any, values: Handle, bins: int, mask: Handle | None) -> Handle:
    """Count values; stock does it through float bin edges, four hundred times slower."""
    counted = values.data if mask is None else values.data[mask.data]
    count = np.bincount(counted.ravel(), minlength=bins).astype(np.int32)
    return interpreter.TensorHandle(count, tl.int32)


def _widened(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a reduction or a scan so that small floats pass through it as float32."""

    def back(result: Any, kind: Any) -> Any:
        if result.dtype.scalar != tl.float32:
            # an index
            return result
        target = tl.block_type(kind, list(result.shape)) if result.type.is_block() else kind
        return tl.tensor(_handle(result.handle.data, kind), target)

    def widened(self: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        kind = values.dtype.scalar
        if not _is_small(kind):
            return operation(self, values, *args, **kwargs)
        handle = interpreter.TensorHandle(_wide(values.handle), tl.float32)
        wide = tl.tensor(handle, tl.block_type(tl.float32, list(values.shape)))
        result = operation(self, wide, *args, **kwargs)
        if isinstance(result, tuple | list):
            return type(result)(back(one, kind) for one in result)
        return back(result, kind)

    return widened
