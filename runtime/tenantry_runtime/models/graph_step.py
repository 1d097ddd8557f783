"""Steps of fixed shape: computed from buffers that stay where they are, on CUDA as captured graphs.

A decode step is some hundred launches, which take a host longer than a GPU computes. Captured once
per bucket of shapes, it is one launch: copy the inputs, replay.

| what | when | in the captured region |
|---|---|---|
| `words` to the step's own | each step, one asynchronous copy | no |
| tokens that earlier steps sampled, to the step's own | each step, on the device | no |
| check, forward pass, sampling, check | each step | yes: it reads and writes only memory of the device, the same each time |
| the outcome to memory of its own | each step, on the device | no: the next replay overwrites the step's |

W words of a step's inputs, P tokens of earlier steps.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import torch

from .decoder import Decoder
from .layers import Moe
from .linear import DenseExperts
from .stored import StoredExperts

BucketT = TypeVar("BucketT", bound=Hashable)
BucketT_contra = TypeVar("BucketT_contra", bound=Hashable, contravariant=True)

_Memory: TypeAlias = Any  # torch gives it a name of its own that is private

# the first compiles kernels and makes libraries choose theirs; the second allocates as the later do
_NUM_WARM_UPS = 2


class Compute(Protocol[BucketT_contra]):
    """A step of one bucket: inputs [W] and tokens [P] on the device to its outcome there.

    Asks nothing of the device, and launches the same whatever its inputs are.
    """

    def __call__(
        self, bucket: BucketT_contra, words_W: torch.Tensor, tokens_P: torch.Tensor, /
    ) -> torch.Tensor: ...


class _Step:
    """Computes anew each time: what a device without graphs does."""

    def __init__(
        self,
        compute: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        words_W: torch.Tensor,
        tokens_P: torch.Tensor,
    ) -> None:
        self.words_W, self.tokens_P = words_W, tokens_P
        self._compute = compute

    def run(self) -> torch.Tensor:
        return self._compute(self.words_W, self.tokens_P)


class _CapturedStep(_Step):
    """Launches the graph that one call of `compute` became."""

    def __init__(
        self,
        compute: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        words_W: torch.Tensor,
        tokens_P: torch.Tensor,
        memory: _Memory,
    ) -> None:
        super().__init__(compute, words_W, tokens_P)
        current = torch.cuda.current_stream()
        beside = torch.cuda.Stream()
        beside.wait_stream(current)
        with torch.cuda.stream(beside):
            for _ in range(_NUM_WARM_UPS):
                compute(words_W, tokens_P)
        current.wait_stream(beside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=memory):
            self._outcome = compute(words_W, tokens_P)

    def run(self) -> torch.Tensor:
        self._graph.replay()
        # the step's own is the next replay's too
        return self._outcome.clone()


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

    def __init__(self, compute: Compute[BucketT], *, device: torch.device, max_tokens: int) -> None:
        """`max_tokens`: P, of earlier steps that have not come back to the host yet."""
        self._compute = compute
        self._device = device
        self._max_tokens = max_tokens
        self._steps: dict[BucketT, _Step] = {}
        self._memory: _Memory = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    @property
    def buckets(self) -> tuple[BucketT, ...]:
        """Those that are prepared."""
        return tuple(self._steps)

    @torch.inference_mode()
    def prepare(self, bucket: BucketT, blank_W: torch.Tensor) -> None:
        """Make a bucket's step; `blank_W` are its inputs where all is padding, which touches no page."""
        words_W = blank_W.to(self._device, non_blocking=True)
        tokens_P = torch.zeros(self._max_tokens, dtype=torch.int64, device=self._device)

        def compute(words_W: torch.Tensor, tokens_P: torch.Tensor) -> torch.Tensor:
            return self._compute(bucket, words_W, tokens_P)

        if self._memory is None:
            self._steps[bucket] = _Step(compute, words_W.clone(), tokens_P)
        else:
            self._steps[bucket] = _CapturedStep(compute, words_W, tokens_P, self._memory)

    @torch.inference_mode()
    def run(
        self, bucket: BucketT, words_W: torch.Tensor, earlier: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Launch the step with inputs from the host; return its outcome, on the device.

        `earlier`: tokens on the device, one after another what `tokens_P` begins with.
        """
        step = self._steps[bucket]
        step.words_W.copy_(words_W, non_blocking=True)
        end = 0
        for tokens in earlier:
            step.tokens_P[end : end + len(tokens)].copy_(tokens)
            end += len(tokens)
        return step.run()
