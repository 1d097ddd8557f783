"""Makes an engine loop of its configuration: the one place where decoders, pages and members meet."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Generic

import torch

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.budget import bytes_per_page, num_pages as pages_in
from tenantry_runtime.cache.formats import SERVED_FORMATS
from tenantry_runtime.cache.owners import OwnerSlots
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.cache.tags import NoTags, PageTags, Tracker
from tenantry_runtime.core import PAGE_TOKENS, Phase
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.models import load_model, warm_up
from tenantry_runtime.pool.handoff import adopt

from .config import DEFAULT_CACHE_BYTES, DtypeName, ModelSource, NodeConfig
from .coverage import Coverage, find_coverage
from .incidents import IncidentLog
from .lane import Lane
from .loop import EngineLoop
from .member import Member, MemberSpec
from .policy import LeastServed
from .runner import CacheT, Decoder, Runner
from .scheduler import Scheduler, SchedulerLimits
from .upkeep import Upkeep

_log = logging.getLogger(__name__)

_DTYPES: dict[DtypeName, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel(Generic[CacheT]):
    """A decoder and its pages, on their device."""

    source: ModelSource
    decoder: Decoder[CacheT]
    revision: str
    cache: CacheT
    num_pages: int
    num_appends: int
    """Of one step, to all layers' pages."""
    coverage: Coverage = field(default_factory=dict)
    """By the check of pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParts:
    """What keeps a model's pages, for those who put faults into it (`cache/faults.py`)."""

    tracker: Callable[..., Tracker] = PageTags
    prefixes: Callable[..., PrefixTrees] = PrefixTrees


def build_loop(config: NodeConfig, *, parts: PageParts | None = None) -> EngineLoop:
    """Load all checkpoints and run their first passes; raises `ConfigurationError` when one is unusable."""
    torch.set_num_threads(config.threads)
    parts = parts or PageParts()
    models = [_load(config, source, parts) for source in config.models]
    return assemble_loop(config, models, parts=parts)


def assemble_loop(
    config: NodeConfig,
    models: Iterable[LoadedModel[CacheT]],
    *,
    clock_s: Callable[[], float] = time.time,
    parts: PageParts | None = None,
) -> EngineLoop:
    """Make members and schedulers around models that are loaded."""
    owners = OwnerSlots()
    lanes = [_lane(config, model, owners, parts or PageParts()) for model in models]
    return EngineLoop(lanes, owners=owners, clock_s=clock_s)


def _load(config: NodeConfig, source: ModelSource, parts: PageParts) -> LoadedModel[PagedCache]:
    decoder = load_model(
        Path(source.directory),
        dtype=_DTYPES[config.dtype],
        device=config.device,
        deterministic=config.deterministic,
    )
    cache_format = SERVED_FORMATS[config.cache_of(source)]
    page_bytes = bytes_per_page(decoder.config, cache_format)
    cache_bytes = config.cache_bytes or DEFAULT_CACHE_BYTES
    num_pages = config.num_pages or pages_in(cache_bytes, page_bytes)
    if num_pages < 1:
        raise ConfigurationError(
            f"cache_bytes {cache_bytes!r} hold no page of {source.id}, "
            f"which takes {page_bytes} bytes, beside the pool's own one"
        )
    cache = PagedCache.allocate(
        decoder.config, num_pages=num_pages, cache_format=cache_format, device=config.device
    )
    started_s = time.perf_counter()
    warm_up(decoder, cache)
    _log.info("%s: first passes took %.1f s", source.id, time.perf_counter() - started_s)
    return LoadedModel(
        source=source,
        decoder=decoder,
        revision=decoder.revision,
        cache=cache,
        num_pages=num_pages,
        num_appends=cache.num_appends,
        coverage=find_coverage(decoder, cache, partial(_tracker, config, parts)),
    )


def _lane(
    config: NodeConfig, model: LoadedModel[CacheT], owners: OwnerSlots, parts: PageParts
) -> Lane:
    if not config.check_pages:
        _log.warning("%s: pages are not checked: check_pages is off", model.source.id)
    tracker = _tracker(config, parts, model.num_pages, model.num_appends)
    pool = PageAllocator(model.num_pages, stamp=tracker.stamp)
    runner = Runner(
        decoder=model.decoder,
        cache=model.cache,
        tracker=tracker,
        vocab_limit=model.source.vocab_limit,
        device=config.device,
    )
    prefill, decode = (
        Member(_spec(config, model, phase), pool=pool, runner=runner) for phase in _PHASES
    )
    prefixes = parts.prefixes(pool=pool, owners=owners)
    scheduler = Scheduler(
        pool=pool,
        prefixes=prefixes,
        policy=LeastServed(),
        handoff=adopt(prefill.endpoint, decode.endpoint),
        limits=SchedulerLimits(
            max_batch=config.max_batch,
            max_waiting=config.max_waiting,
            chunk_tokens=config.chunk_tokens,
        ),
        incidents=IncidentLog(limit=config.max_incidents),
    )
    return Lane(
        scheduler=scheduler,
        prefill=prefill,
        decode=decode,
        prefixes=prefixes,
        tracker=tracker,
        upkeep=Upkeep(pool=pool, prefixes=prefixes, tracker=tracker),
        vocab_size=model.decoder.config.vocab_size,
    )


def _tracker(config: NodeConfig, parts: PageParts, num_pages: int, num_appends: int) -> Tracker:
    if not config.check_pages:
        return NoTags(config.device)
    return parts.tracker(num_pages, num_appends=num_appends, device=config.device)


def _spec(config: NodeConfig, model: LoadedModel[CacheT], phase: Phase) -> MemberSpec:
    return MemberSpec(
        model=model.source.id,
        phase=phase,
        weights=config.dtype,
        cache=config.cache_of(model.source),
        context_tokens=min(model.decoder.config.context_tokens, model.num_pages * PAGE_TOKENS),
        revision=model.revision,
        coverage=model.coverage.get(phase, ()),
    )


_PHASES: tuple[Phase, Phase] = ("prefill", "decode")
