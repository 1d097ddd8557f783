"""Steps of a runner without a scheduler: sequences that hold pages, plans made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from support.tiny_decoder import a_decoder
from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.formats import SERVED_FORMATS, CacheName
from tenantry_runtime.cache.owners import OwnerSlot
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.cache.pages import Lease
from tenantry_runtime.cache.tags import PageTags
from tenantry_runtime.core import Phase, Sampling
from tenantry_runtime.engine.device_runner import DeviceHandle, DeviceRunner
from tenantry_runtime.engine.guide import Guide
from tenantry_runtime.engine.history import TokenHistory, is_adjusting
from tenantry_runtime.engine.plan import Entry, StepPlan, StepResult
from tenantry_runtime.engine.runner import Runner
from tenantry_runtime.models.config import Family
from tenantry_runtime.models.decoder import Decoder

NUM_PAGES = 16
GREEDY = Sampling(seed=3, temperature=0.0)


@dataclass(frozen=True, slots=True)
class _Held:
    lease: Lease
    owner: OwnerSlot


@dataclass(slots=True)
class _Submit:
    sampling: Sampling


@dataclass(slots=True, eq=False)
class BenchSequence:
    """What a runner needs to know of a sequence."""

    held: _Held
    submit: _Submit
    length: int = 0
    tokens: list[int] = field(default_factory=list)
    history: TokenHistory | None = None
    guide: Guide | None = None


class Listening:
    """A decoder that keeps the logits that it gave last."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.config = decoder.config
        self.logits_RV = torch.empty(0)

    def forward(self, *step: Any) -> torch.Tensor:
        return self.decoder.forward(*step)

    def logits(self, hidden_RH: torch.Tensor) -> torch.Tensor:
        self.logits_RV = self.decoder.logits(hidden_RH)
        return self.logits_RV


@dataclass(slots=True, eq=False)
class Bench:
    """A runner with its pages. Everything that nobody has written is poison."""

    decoder: Listening
    cache: PagedCache
    tags: PageTags
    pool: PageAllocator
    runner: Runner[PagedCache] | DeviceRunner[PagedCache]
    sequences: list[BenchSequence] = field(default_factory=list)

    @classmethod
    def build(
        cls,
        family: Family,
        cache: CacheName,
        *,
        on_gpu: bool,
        device: str = "cpu",
        deterministic: bool = False,
        has_graphs: bool = True,
    ) -> Bench:
        decoder = Listening(a_decoder(family, device=device, deterministic=deterministic))
        pages = PagedCache.allocate(
            decoder.config, num_pages=NUM_PAGES, cache_format=SERVED_FORMATS[cache], device=device
        )
        for pool in (*pages.latent_N, *pages.index_keys.values()):
            # bits that are not a number in every format, of values and of scales
            pool.view(torch.uint8).fill_(0xFF)
        tags = PageTags(
            NUM_PAGES, num_appends=pages.num_appends, device=device, has_device_lengths=on_gpu
        )
        runner: Runner[PagedCache] | DeviceRunner[PagedCache]
        if on_gpu:
            runner = DeviceRunner(
                decoder=decoder,
                cache=pages,
                tracker=tags,
                device=device,
                max_batch=8,
                has_graphs=has_graphs,
            )
        else:
            runner = Runner(decoder=decoder, cache=pages, tracker=tags, device=device)
        return cls(decoder, pages, tags, PageAllocator(NUM_PAGES, stamp=tags.stamp), runner)

    def add(self, num_sequences: int, num_pages: int, sampling: Sampling = GREEDY) -> None:
        """Give new sequences pages, one after another, so that nobody's are in order."""
        # what is freed last is given first
        self.pool.release(self.pool.reserve(OwnerSlot(9), num_pages), after=0)
        for n in range(num_sequences):
            owner = OwnerSlot(n + 1)
            held = _Held(self.pool.reserve(owner, 0), owner)
            self.sequences.append(BenchSequence(held, _Submit(sampling)))
        for _ in range(num_pages):
            for sequence in self.sequences[-num_sequences:]:
                sequence.held.lease.extend(1)

    def copy_memory(self, other: Bench) -> None:
        """Take over what another bench's sequences have written."""
        for ours, theirs in zip(self.sequences, other.sequences, strict=True):
            assert ours.held.lease.refs == theirs.held.lease.refs
            ours.length, ours.tokens = theirs.length, list(theirs.tokens)
        pairs = [
            *zip(self.cache.latent_N, other.cache.latent_N, strict=True),
            *zip(self.cache.index_keys.values(), other.cache.index_keys.values(), strict=True),
            (self.tags.arrays.fill_P, other.tags.arrays.fill_P),
        ]
        for memory, source in pairs:
            memory.copy_(source)

    def plan(
        self,
        tokens_S: Sequence[Sequence[int] | None],
        *,
        phase: Phase = "decode",
        wants_S: Sequence[bool] | None = None,
    ) -> StepPlan:
        """Return a step of the sequences that have tokens, and count them as written."""
        entries = []
        for n, (sequence, token_ids) in enumerate(zip(self.sequences, tokens_S, strict=True)):
            if token_ids is None:
                continue
            wants = wants_S is None or wants_S[n]
            sampling = sequence.submit.sampling
            if sequence.history is None and is_adjusting(sampling):
                # all its tokens count as answer
                sequence.history = TokenHistory(sampling, (), 0)
            # a runner asks nothing else of a sequence
            entries.append(Entry(cast(Any, sequence), token_ids, sequence.length, wants))
            sequence.length += len(token_ids)
            sequence.tokens += token_ids
        return StepPlan(step=1, phase=phase, entries=tuple(entries))

    def step(self, tokens_S: Sequence[Sequence[int] | None]) -> StepResult:
        return self.runner.launch(self.plan(tokens_S)).collect()

    def start(self, plan: StepPlan, earlier: Sequence[DeviceHandle] = ()) -> DeviceHandle:
        assert isinstance(self.runner, DeviceRunner)
        return self.runner.launch(plan, earlier=earlier)


def some_tokens(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    token_ids: list[int] = torch.randint(48, (length,), generator=generator).tolist()
    return token_ids
