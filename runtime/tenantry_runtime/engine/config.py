"""What a node serves and with how much: the `engine` part of a node's configuration file."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

from tenantry_runtime.cache.budget import DEFAULT_MEMORY_FRACTION
from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.cache.prefix import MAX_TREES
from tenantry_runtime.core import Phase
from tenantry_runtime.pool.shared_pages import BUDGET_BYTES

DtypeName: TypeAlias = Literal["float32", "bfloat16"]
WeightsName: TypeAlias = Literal["stored", "dense"]

DEFAULT_CACHE_BYTES = 256 << 20
"""Per page pool, on a CPU. 32 sequences of 4,096 tokens take 230 MiB in a decoder of 1,800 cached bytes per token."""

CPU_HANDOFF_BYTES = 4 << 20
"""A page of a released model, or fifty of a nano one."""

GPU_HANDOFF_BYTES = BUDGET_BYTES
"""All slots between front and loop: a dozen pages of a released model. They cross in about a
millisecond, of steps that take twenty; one page a step would be 0.2 GB/s."""

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")

# one 16-bit owner slot is public, one nobody's; every sequence and every prefix tree may be of another tenant
_MAX_OWNERS = (1 << 16) - 2


class ModelSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model to serve."""

    id: str
    """Canonical id, as the catalog has it."""
    directory: str
    """Of the checkpoint."""
    vocab_limit: int | None = None
    """Token ids from here on have no text and are never sampled; None: all have."""
    cache: CacheName | None = None
    """Format of its pages; None: the node's."""
    tokenizer_digest: str = ""
    """With the next: what members of a pairing must agree in; the step loop's process fills them in."""
    template_digest: str = ""
    phases: tuple[Phase, ...] = ("prefill", "decode")
    """What this node does of it."""
    prefill_cache: CacheName | None = None
    """Format of the pages of the prefill member; None: as `cache`. Another one takes a pool of its own."""
    separate_pools: bool = False
    """Give each member a pool of its own, even where one would do for both."""

    def __post_init__(self) -> None:
        if not self.phases or len(set(self.phases)) < len(self.phases):
            raise ValueError(f"phases of {self.id!r} must name prefill, decode or both, once each")
        if self.prefill_cache is not None and "prefill" not in self.phases:
            raise ValueError(f"prefill_cache of {self.id!r} needs prefill among its phases")


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Decoded from JSON; a bad value raises `msgspec.ValidationError` there, `ValueError` here."""

    models: tuple[ModelSource, ...]
    dtype: DtypeName | None = None
    """Of computation, and of weights that are not kept as stored. None: as is fit for the device."""
    weights: WeightsName | None = None
    """How matrices are kept in memory; None: dense where a model is small (`models/loader.py`)."""
    cache: CacheName = "bf16"
    """Format of the pages (`cache/formats.py`), where a model names no other."""
    device: str = "cpu"
    """That, or a GPU: "cuda", "cuda:1"."""
    threads: int = 1
    """Of torch's operators on a CPU. More than free cores costs more than it brings."""
    deterministic: bool = False
    """A sequence's tokens do not depend on its batch, at some cost in speed."""
    check_pages: bool = True
    """Compare every page that a step reads or writes with its tag, its owner and its fill."""
    max_incidents: int = 16
    """Pages of one model that do not pass within a minute; then it takes no work until they are fewer."""
    drills: bool = False
    """Let `workerctl drill` put faults into a node of this configuration."""
    num_pages: int | None = None
    """Per page pool; excludes `cache_bytes`."""
    cache_bytes: int | None = None
    """Per page pool: twice as much where a model's members have one each. None: `num_pages`, else
    `memory_fraction`, else `DEFAULT_CACHE_BYTES` on a CPU."""
    memory_fraction: float | None = None
    """Of the device's memory, for this node's weights, activations and page pools, which share what is
    left of it alike; excludes the two before. None: `DEFAULT_MEMORY_FRACTION` on a GPU."""
    max_batch: int = 64
    """Sequences of one page pool that hold pages at one time."""
    max_waiting: int = 512
    """Sequences of one page pool in the queue; more are refused with `capacity`."""
    chunk_tokens: int = 512
    """Prompt tokens per step: the longest that a running answer waits."""
    handoff_bytes: int | None = None
    """Of pages that hand-offs bring, and that they take away, per turn: what they may add to a step.
    A page of more bytes passes alone. None: as is fit for the device."""

    @property
    def is_on_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def compute_dtype(self) -> DtypeName:
        """`dtype`, whether it was given or not."""
        return self.dtype or ("bfloat16" if self.is_on_gpu else "float32")

    @property
    def turn_bytes(self) -> int:
        """`handoff_bytes`, whether it was given or not."""
        if self.handoff_bytes is not None:
            return self.handoff_bytes
        return GPU_HANDOFF_BYTES if self.is_on_gpu else CPU_HANDOFF_BYTES

    @property
    def filled_fraction(self) -> float | None:
        """`memory_fraction`, whether it was given or not; None: something else says how many pages there are."""
        is_left_out = self._num_budgets == 0
        return DEFAULT_MEMORY_FRACTION if is_left_out and self.is_on_gpu else self.memory_fraction

    @property
    def _num_budgets(self) -> int:
        """Of the ways to say how many pages there are, how many were used."""
        budgets = (self.num_pages, self.cache_bytes, self.memory_fraction)
        return sum(budget is not None for budget in budgets)

    def cache_of(self, source: ModelSource, phase: Phase = "decode") -> CacheName:
        """Return the format of the pages of one of a model's members."""
        cache = source.cache or self.cache
        return source.prefill_cache or cache if phase == "prefill" else cache

    def pools_of(self, source: ModelSource) -> tuple[tuple[Phase, ...], ...]:
        """Return which of a model's members share a page pool."""
        both: tuple[Phase, ...] = ("prefill", "decode")
        if set(source.phases) != set(both):
            return (source.phases,)
        is_one_format = self.cache_of(source, "prefill") == self.cache_of(source, "decode")
        if is_one_format and not source.separate_pools:
            return (both,)
        return (("prefill",), ("decode",))

    def __post_init__(self) -> None:
        counts = {
            "threads": self.threads,
            "num_pages": self.num_pages,
            "cache_bytes": self.cache_bytes,
            "max_batch": self.max_batch,
            "max_waiting": self.max_waiting,
            "chunk_tokens": self.chunk_tokens,
            "max_incidents": self.max_incidents,
            "handoff_bytes": self.handoff_bytes,
        }
        for name, value in counts.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")
        ids = [model.id for model in self.models]
        if not ids or len(set(ids)) < len(ids):
            raise ValueError(f"models must name one or more different ids, not {ids!r}")
        if not _DEVICE.fullmatch(self.device):
            raise ValueError(f"device must be cpu, cuda or cuda:N, not {self.device!r}")
        if self.is_on_gpu and self.dtype == "float32":
            raise ValueError("dtype must be bfloat16 on a GPU, whose kernels compute in that alone")
        if self.deterministic and not self.is_on_gpu and self.threads > 1:
            # with more, torch cuts elementwise work in the middle of a row, wherever that falls
            raise ValueError(f"deterministic needs threads to be 1 on a CPU, not {self.threads!r}")
        if self._num_budgets > 1:
            raise ValueError("give one of num_pages, cache_bytes and memory_fraction")
        if self.memory_fraction is not None and not 0 < self.memory_fraction <= 1:
            raise ValueError(
                f"memory_fraction must be above 0 and at most 1, not {self.memory_fraction!r}"
            )
        num_pools = sum(len(self.pools_of(model)) for model in self.models)
        if (self.max_batch + MAX_TREES) * num_pools > _MAX_OWNERS:
            raise ValueError(
                f"max_batch times the number of page pools must be at most "
                f"{_MAX_OWNERS - MAX_TREES * num_pools}, not {self.max_batch * num_pools}"
            )
