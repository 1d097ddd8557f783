"""What a node serves and with how much: the `engine` part of a node's configuration file."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.cache.prefix import MAX_TREES

DtypeName: TypeAlias = Literal["float32", "bfloat16"]

DEFAULT_CACHE_BYTES = 256 << 20
"""Per model. 32 sequences of 4,096 tokens take 230 MiB in a decoder of 1,800 cached bytes per token."""

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


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Decoded from JSON; a bad value raises `msgspec.ValidationError` there, `ValueError` here."""

    models: tuple[ModelSource, ...]
    dtype: DtypeName = "float32"
    """Of weights and computation."""
    cache: CacheName = "bf16"
    """Format of the pages (`cache/formats.py`), where a model names no other."""
    device: str = "cpu"
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
    """Per model; excludes `cache_bytes`."""
    cache_bytes: int | None = None
    """Per model; None: `num_pages`, else `DEFAULT_CACHE_BYTES`."""
    max_batch: int = 64
    """Sequences of one model that hold pages at one time."""
    max_waiting: int = 512
    """Sequences of one model in the queue; more are refused with `capacity`."""
    chunk_tokens: int = 512
    """Prompt tokens per step: the longest that a running answer waits."""

    def cache_of(self, source: ModelSource) -> CacheName:
        """Return the format of a model's pages."""
        return source.cache or self.cache

    def __post_init__(self) -> None:
        counts = {
            "threads": self.threads,
            "num_pages": self.num_pages,
            "cache_bytes": self.cache_bytes,
            "max_batch": self.max_batch,
            "max_waiting": self.max_waiting,
            "chunk_tokens": self.chunk_tokens,
            "max_incidents": self.max_incidents,
        }
        for name, value in counts.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")
        ids = [model.id for model in self.models]
        if not ids or len(set(ids)) < len(ids):
            raise ValueError(f"models must name one or more different ids, not {ids!r}")
        if self.deterministic and self.device == "cpu" and self.threads > 1:
            # with more, torch cuts elementwise work in the middle of a row, wherever that falls
            raise ValueError(f"deterministic needs threads to be 1 on a CPU, not {self.threads!r}")
        if self.num_pages is not None and self.cache_bytes is not None:
            raise ValueError("give either num_pages or cache_bytes, not both")
        if (self.max_batch + MAX_TREES) * len(ids) > _MAX_OWNERS:
            raise ValueError(
                f"max_batch times the number of models must be at most "
                f"{_MAX_OWNERS - MAX_TREES * len(ids)}, not {self.max_batch * len(ids)}"
            )
