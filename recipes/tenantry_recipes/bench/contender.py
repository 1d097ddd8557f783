"""What is compared: an engine that answers a batch of prompts, and when each token came."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.core import Message, RenderOptions

DtypeName: TypeAlias = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPrompt:
    """One prompt, as ids and as what a client sends."""

    token_ids: tuple[int, ...]
    messages: tuple[Message, ...]
    options: RenderOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One batch of requests, all submitted at time 0; times in seconds."""

    token_s: tuple[tuple[float, ...], ...]
    """Per request, when each of its tokens came."""
    token_ids: tuple[tuple[int, ...], ...] = ()
    """Per request; empty where only text comes back."""

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.token_s))

    @property
    def total_s(self) -> float:
        return max(times[-1] for times in self.token_s)

    @property
    def prefill_s(self) -> float:
        """Until every request had its first token; others may have had more by then."""
        return max(times[0] for times in self.token_s)

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.total_s

    @property
    def decode_tokens_per_s(self) -> float:
        """Of the time in which no prompt was read."""
        num_later = sum(time > self.prefill_s for times in self.token_s for time in times)
        return num_later / (self.total_s - self.prefill_s)

    @property
    def step_s(self) -> float:
        """Median time between two tokens of one request, when no prompt was read."""
        return statistics.median(
            later - earlier
            for times in self.token_s
            for earlier, later in pairwise(times)
            if earlier >= self.prefill_s
        )


class Contender(Protocol):
    """An engine with one model, ready to run."""

    def generate(self, prompts: Sequence[BenchPrompt], num_tokens: int) -> Run:
        """Answer all prompts at once, greedily, with exactly `num_tokens` tokens each."""
        ...

    def peak_bytes(self) -> int:
        """Return the most memory that its processes ever had."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """This runtime's engine, in one process."""

    directory: Path
    dtype: DtypeName
    cache: CacheName = "bf16"
    threads: int
    max_batch: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """This runtime as it is served: an edge and a node, asked over HTTP."""

    engine: EngineSettings
    text_directory: Path
    """Of the checkpoint whose vocabulary and template the model has."""
    vocab_limit: int
    """Control tokens, which end an answer, have ids from here on and are not sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformersSettings:
    """`generate` of transformers: one left-padded static batch with a cache."""

    directory: Path
    dtype: DtypeName
    threads: int
    attention: str | None = None
    """`sdpa` or `eager`; None: what transformers chooses."""
    experts: str | None = None
    """`eager`, `batched_mm` or `grouped_mm`; None: what transformers chooses."""


Settings: TypeAlias = EngineSettings | HttpSettings | TransformersSettings


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment variables that a contender's process starts with."""
    if isinstance(settings, TransformersSettings):
        return {"OMP_NUM_THREADS": str(settings.threads), "HF_HUB_OFFLINE": "1"}
    if isinstance(settings, HttpSettings):
        return {}
    # what a node gives its step loop
    return {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
