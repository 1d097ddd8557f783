"""Which tensors a conversion writes into which shard, before any is read.

The plan is a function of the source's headers, the recipe and the size of a shard: a conversion that
is taken up again makes the same one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal, NamedTuple, TypeAlias

from tenantry_runtime.errors import ConversionError
from tenantry_runtime.models.checkpoint import Checkpoint
from tenantry_runtime.models.config import ModelConfig
from tenantry_runtime.models.quantize import FP8_BLOCK, INT4_GROUP, INT4_PER_WORD
from tenantry_runtime.models.safetensors_file import DTYPES

from .inventory import Wanted, list_tensors
from .recipe import Recipe

Action: TypeAlias = Literal["copy", "to_bf16", "to_int4"]

_DENSE = ("BF16", "F16", "F32")


class Stored(NamedTuple):
    """One tensor of the output."""

    name: str
    dtype: str
    """In the words of the safetensors format."""
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return DTYPES[self.dtype].itemsize * prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One tensor of the source, its scales included, on its way into the output."""

    action: Action
    name: str
    shape: tuple[int, ...]
    is_fp8: bool
    source_bytes: int
    outputs: tuple[Stored, ...]

    @property
    def is_expert(self) -> bool:
        return self.action == "to_int4"

    @property
    def output_bytes(self) -> int:
        return sum(stored.num_bytes for stored in self.outputs)


class Shard(NamedTuple):
    """One file of the output."""

    file: str
    steps: tuple[Step, ...]

    @property
    def outputs(self) -> tuple[Stored, ...]:
        return tuple(stored for step in self.steps for stored in step.outputs)


@dataclass(frozen=True)
class Plan:
    """All files with tensors."""

    shards: tuple[Shard, ...]

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for shard in self.shards for step in shard.steps)

    @cached_property
    def weight_map(self) -> Mapping[str, str]:
        """Tensor to file."""
        return {stored.name: shard.file for shard in self.shards for stored in shard.outputs}


def make_plan(
    checkpoint: Checkpoint, config: ModelConfig, recipe: Recipe, *, shard_bytes: int
) -> Plan:
    """Return the plan; raise CheckpointError or ConversionError if the source is not fit for it."""
    wanted = list_tensors(config)
    steps = [_step(checkpoint, tensor, recipe) for tensor in wanted]
    checkpoint.require_all_read(config.skipped_tensors)
    steps += _unread(checkpoint, config, steps)
    _require_fp8(checkpoint, recipe, steps)
    return Plan(tuple(_shards(steps, shard_bytes)))


def _step(checkpoint: Checkpoint, tensor: Wanted, recipe: Recipe) -> Step:
    name = tensor.name
    if tensor.role == "vector":
        return _copy(checkpoint, name, tensor.shape)
    if f"{name}_packed" in checkpoint:
        raise ConversionError(
            str(checkpoint.directory),
            f"{name} is INT4 already: there is nothing to gain; "
            "serve this directory as it is, or name the FP8 or BF16 release as the source",
        )
    scales = _scales(checkpoint, tensor)
    if tensor.role == "expert":
        return _to_int4(checkpoint, tensor, scales)
    if scales and recipe.rest == "bf16":
        outputs = (Stored(name, "BF16", tensor.shape),)
        return _make("to_bf16", checkpoint, (name, *scales), outputs)
    return _copy(checkpoint, name, tensor.shape, scales)


def _scales(checkpoint: Checkpoint, tensor: Wanted) -> tuple[str, ...]:
    """Return the name of a matrix's block scales; () if it is dense."""
    stored = checkpoint.look_up(tensor.name, tensor.shape)
    name = f"{tensor.name}_scale_inv"
    if stored.dtype == "F8_E4M3":
        if name not in checkpoint:
            raise checkpoint.fail(tensor.name, "is FP8 without its weight_scale_inv")
        blocks = tuple(-(-size // FP8_BLOCK) for size in tensor.shape)
        if (dtype := checkpoint.look_up(name, blocks).dtype) != "F32":
            raise checkpoint.fail(name, f"is {dtype}, expected F32")
        return (name,)
    if stored.dtype not in _DENSE:
        raise checkpoint.fail(
            tensor.name,
            f"is {stored.dtype}; only F8_E4M3 blocks, {', '.join(_DENSE)} are converted",
        )
    if name in checkpoint:
        raise checkpoint.fail(tensor.name, f"is {stored.dtype} and has block scales; F8_E4M3 has")
    return ()


def _to_int4(checkpoint: Checkpoint, tensor: Wanted, scales: tuple[str, ...]) -> Step:
    out_dim, in_dim = tensor.shape
    if in_dim % INT4_GROUP:
        raise checkpoint.fail(
            tensor.name, f"has {in_dim} columns, which are not whole groups of {INT4_GROUP}"
        )
    outputs = (
        Stored(f"{tensor.name}_packed", "I32", (out_dim, in_dim // INT4_PER_WORD)),
        Stored(f"{tensor.name}_scale", "BF16", (out_dim, in_dim // INT4_GROUP)),
        Stored(f"{tensor.name}_shape", "I32", (2,)),
    )
    return _make("to_int4", checkpoint, (tensor.name, *scales), outputs)


def _copy(
    checkpoint: Checkpoint, name: str, shape: tuple[int, ...] | None, scales: tuple[str, ...] = ()
) -> Step:
    checkpoint.look_up(name, shape)
    outputs = []
    for key in (name, *scales):
        stored = checkpoint.look_up(key)
        if stored.dtype not in DTYPES:
            raise checkpoint.fail(key, f"is stored as {stored.dtype}")
        outputs.append(Stored(key, stored.dtype, stored.shape))
    return _make("copy", checkpoint, (name, *scales), tuple(outputs))


def _make(
    action: Action, checkpoint: Checkpoint, sources: tuple[str, ...], outputs: tuple[Stored, ...]
) -> Step:
    stored = [checkpoint.look_up(name) for name in sources]
    return Step(
        action=action,
        name=sources[0],
        shape=stored[0].shape,
        is_fp8=len(sources) > 1,
        source_bytes=sum(one.num_bytes for one in stored),
        outputs=outputs,
    )


def _unread(checkpoint: Checkpoint, config: ModelConfig, steps: Sequence[Step]) -> Iterator[Step]:
    """Copy what this runtime does not read: a vision tower, stray buffers."""
    patterns = [re.compile(pattern) for pattern in config.skipped_tensors]
    seen = {step.name for step in steps}
    for name in checkpoint.names:
        if name not in seen and any(pattern.fullmatch(name) for pattern in patterns):
            yield _copy(checkpoint, name, None)


def _require_fp8(checkpoint: Checkpoint, recipe: Recipe, steps: Sequence[Step]) -> None:
    if recipe.rest == "fp8" and not any(step.is_fp8 and not step.is_expert for step in steps):
        raise ConversionError(
            str(checkpoint.directory),
            "has no FP8 matrices that `rest` fp8 could keep as released; "
            "convert with `rest` bf16, or name the FP8 release as the source",
        )


def _shards(steps: Sequence[Step], shard_bytes: int) -> Iterator[Shard]:
    """Cut where the next tensor would make a file longer than `shard_bytes`; one tensor is never cut."""
    held: list[list[Step]] = [[]]
    size = 0
    for step in steps:
        if held[-1] and size + step.output_bytes > shard_bytes:
            held.append([])
            size = 0
        held[-1].append(step)
        size += step.output_bytes
    for n, part in enumerate(held):
        yield Shard(f"model-{n + 1:05}-of-{len(held):05}.safetensors", tuple(part))
