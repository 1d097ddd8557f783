"""Steps of fixed shape: computed from buffers that stay where they are, on CUDA as captured graphs.

A decode step is some hundred launches, which take a host longer than a GPU computes. Captured once
per bucket of shapes, it is one launch: copy the inputs, replay. A step whose sampling waits for
something that the host finds meanwhile (masks of grammars) is two: what the host finds is copied
between them, so that finding it takes time only where it takes longer than the forward pass.

| what | when | in a captured region |
|---|---|---|
| `words` to the step's own | each step, one asynchronous copy | no |
| tokens that earlier steps sampled, to the step's own | each step, on the device | no |
| check, forward pass | each step | yes: it reads and writes only memory of the device, the same each time |
| what the host has found meanwhile, to the step's own | steps that wait for it, one asynchronous copy | no |
| sampling, check | each step | yes; the same region where nothing is waited for |
| the outcome to memory of its own | each step, on the device | no: the next replay overwrites the step's |

W words of a step's inputs, P tokens of earlier steps, L words that come late.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import torch

from .decoder import Decoder
from .layers import Moe
from .linear import DenseExperts
from .stored import StoredExperts

BucketT = TypeVar("BucketT", bound=Hashable)
T = TypeVar("T")
BucketT_contra = TypeVar("BucketT_contra", bound=Hashable, contravariant=True)

_Memory: TypeAlias = Any  # torch gives it a name of its own that is private

# the first compiles kernels and makes libraries choose theirs; the second allocates as the later do
_NUM_WARM_UPS = 2


class Stages(Protocol[BucketT_contra]):
    """A step of one bucket, all on the device.

    Asks nothing of the device, and launches the same whatever its inputs are.
    """

    def begin(
        self, bucket: BucketT_contra, words_W: torch.Tensor, tokens_P: torch.Tensor, /
    ) -> tuple[torch.Tensor, ...]:
        """Return what `end` goes on from."""
        ...

    def end(
        self,
        bucket: BucketT_contra,
        words_W: torch.Tensor,
        found: tuple[torch.Tensor, ...],
        late_L: torch.Tensor | None,
        /,
    ) -> torch.Tensor:
        """Return the outcome. None: the step waits for nothing."""
        ...


class _Captured(Generic[T]):
    """Launches the graph that one call of `compute` became; what it returns is the next replay's too."""

    def __init__(self, compute: Callable[[], T], memory: _Memory) -> None:
        current = torch.cuda.current_stream()
        beside = torch.cuda.Stream()
        beside.wait_stream(current)
        with torch.cuda.stream(beside):
            for _ in range(_NUM_WARM_UPS):
                compute()
        current.wait_stream(beside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=memory):
            self._outcome = compute()

    def __call__(self) -> T:
        self._graph.replay()
        return self._outcome


class _Step(Generic[BucketT]):
    """One bucket's buffers, and what runs over them."""

    def __init__(
        self,
        stages: Stages[BucketT],
        bucket: BucketT,
        words_W: torch.Tensor,
        tokens_P: torch.Tensor,
        late_L: torch.Tensor | None,
        memory: _Memory,
    ) -> None:
        self.words_W, self.tokens_P, self._late_L = words_W, tokens_P, late_L

        def begin() -> tuple[torch.Tensor, ...]:
            return stages.begin(bucket, words_W, tokens_P)

        def end(found: tuple[torch.Tensor, ...]) -> torch.Tensor:
            return stages.end(bucket, words_W, found, late_L)

        def whole() -> torch.Tensor:
            return end(begin())

        self._begin: Callable[[], tuple[torch.Tensor, ...]] = begin
        self._end: Callable[[tuple[torch.Tensor, ...]], torch.Tensor] = end
        self._whole: Callable[[], torch.Tensor] = whole
        if memory is None:
            return
        if late_L is None:
            self._whole = _Captured(whole, memory)
        else:
            self._begin = captured = _Captured(begin, memory)
            # what it goes on from lies where each replay of the beginning leaves it
            captured_end = _Captured(partial(end, captured()), memory)
            self._end = lambda _found: captured_end()

    def run(self, late: Callable[[], torch.Tensor] | None) -> torch.Tensor:
        if self._late_L is None:
            outcome = self._whole()
        else:
            assert late is not None, "a step of this bucket waits for what comes late"
            found = self._begin()
            self._late_L.copy_(late(), non_blocking=True)
            outcome = self._end(found)
        # the step's own is the next replay's too
        return outcome.clone()


def can_be_captured(decoder: Decoder) -> bool:
    """Return whether a decode step asks the device for nothing: experts are chosen there alone."""
    return decoder.embedding_VH.dtype == torch.bfloat16 and all(
        not isinstance(layer.mlp, Moe)
        or isinstance(layer.mlp.experts, DenseExperts)
        or (isinstance(layer.mlp.experts, StoredExperts) and layer.mlp.experts.is_grouped)
        for layer in decoder.layers
    )


class GraphSteps(Generic[BucketT]):
    """Runs steps by their bucket; a bucket's first step makes what the later ones run."""

    def __init__(self, stages: Stages[BucketT], *, device: torch.device, max_tokens: int) -> None:
        """`max_tokens`: P, of earlier steps that have not come back to the host yet."""
        self._stages = stages
        self._device = device
        self._max_tokens = max_tokens
        self._steps: dict[BucketT, _Step[BucketT]] = {}
        self._memory: _Memory = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    @property
    def buckets(self) -> tuple[BucketT, ...]:
        """Those that are prepared."""
        return tuple(self._steps)

    @torch.inference_mode()
    def prepare(
        self, bucket: BucketT, blank_W: torch.Tensor, blank_L: torch.Tensor | None = None
    ) -> None:
        """Make a bucket's step; `blank_W` are its inputs where all is padding, which touches no page.

        `blank_L`: what comes late; None if its steps wait for nothing.
        """
        # copies: on a CPU the inputs are the caller's own
        words_W = blank_W.to(self._device, copy=True, non_blocking=True)
        late_L = None if blank_L is None else blank_L.to(self._device, copy=True, non_blocking=True)
        tokens_P = torch.zeros(self._max_tokens, dtype=torch.int64, device=self._device)
        self._steps[bucket] = _Step(self._stages, bucket, words_W, tokens_P, late_L, self._memory)

    @torch.inference_mode()
    def run(
        self,
        bucket: BucketT,
        words_W: torch.Tensor,
        earlier: Sequence[torch.Tensor],
        late: Callable[[], torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Launch the step with inputs from the host; return its outcome, on the device.

        `earlier`: tokens on the device, one after another what `tokens_P` begins with. `late` is called
        once the forward pass is launched, and finds what sampling waits for.
        """
        step = self._steps[bucket]
        step.words_W.copy_(words_W, non_blocking=True)
        end = 0
        for tokens in earlier:
            step.tokens_P[end : end + len(tokens)].copy_(tokens)
            end += len(tokens)
        return step.run(late)
