"""Makes an engine loop of its configuration: the one place where decoders, pages and members meet."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Generic

import torch

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.budget import bytes_per_page, num_pages as pages_in, usable_bytes
from tenantry_runtime.cache.formats import SERVED_FORMATS
from tenantry_runtime.cache.owners import OwnerSlots
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.cache.tags import NoTags, PageTags, Tracker
from tenantry_runtime.cache.wire import PageWire
from tenantry_runtime.cache.wire_pages import WirePages
from tenantry_runtime.core import PAGE_TOKENS, Phase
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.models import load_model, warm_up
from tenantry_runtime.models.convert import Manifest, read_manifest
from tenantry_runtime.models.decoder import Decoder as LoadedDecoder
from tenantry_runtime.models.device_attend import reads_on_device
from tenantry_runtime.models.graph_step import can_be_captured
from tenantry_runtime.pool.handoff import adopt
from tenantry_runtime.pool.page_port import PagePort

from .background import Layers
from .config import DEFAULT_CACHE_BYTES, DtypeName, ModelSource, NodeConfig
from .coverage import Coverage, find_coverage
from .device_runner import DeviceRunner
from .devices import DeviceMemory, memory_of, require_device
from .exchange import ServiceExchange
from .fairness import VirtualCounters
from .guide import Guides
from .incidents import IncidentLog
from .lane import Lane
from .loop import EngineLoop
from .member import Member, MemberSpec, StepRunner
from .runner import CacheT, Decoder, Runner
from .scheduler import Scheduler, SchedulerLimits
from .upkeep import Upkeep

_log = logging.getLogger(__name__)

_DTYPES: dict[DtypeName, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel(Generic[CacheT]):
    """A decoder and the pages of one of its pools, on their device."""

    source: ModelSource
    decoder: Decoder[CacheT]
    revision: str
    cache: CacheT
    num_pages: int
    num_appends: int
    """Of one step, to all layers' pages."""
    phases: tuple[Phase, ...] = ("prefill", "decode")
    """Of the members that keep their pages here."""
    wire: Callable[[Tracker], PageWire] | None = None
    """Makes the pages' way out and in; None: there is none."""
    reads_on_device: bool = False
    """Whether its pages' ops take lengths from the device (`cache/ops.py`)."""
    has_graphs: bool = False
    """Whether its decode steps may be captured (`models/graph_step.py`)."""
    runs_ahead: bool = False
    """Whether its steps are planned before those before them have come back (`engine/flights.py`)."""
    origin: Manifest | None = None
    """Set where the checkpoint was converted from another one."""
    weights: str = ""
    """Formats of its matrices in memory; empty: the configured dtype."""
    coverage: Coverage = field(default_factory=dict)
    """By the check of pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParts:
    """What keeps a model's pages, for those who put faults into it (`cache/faults.py`)."""

    tracker: Callable[..., Tracker] = PageTags
    prefixes: Callable[..., PrefixTrees] = PrefixTrees


def build_loop(
    config: NodeConfig,
    *,
    parts: PageParts | None = None,
    port: PagePort | None = None,
    memory: Callable[[str], DeviceMemory] = memory_of,
) -> EngineLoop:
    """Load all checkpoints and run their first passes; raises `ConfigurationError` when one is unusable.

    `port` leads to other nodes; without one hand-offs stay within this one. `memory` says what a device
    has left once weights are there.
    """
    require_device(config.device)
    torch.set_num_threads(config.threads)
    try:
        return _build(config, parts or PageParts(), port, memory)
    except torch.OutOfMemoryError as error:
        raise ConfigurationError(
            f"weights, pages and first passes do not fit into the memory of {config.device!r} ({error}); "
            "use a smaller memory_fraction, smaller weights or fewer models"
        ) from error


def _build(
    config: NodeConfig,
    parts: PageParts,
    port: PagePort | None,
    memory: Callable[[str], DeviceMemory],
) -> EngineLoop:
    decoders = [_load(config, source) for source in config.models]
    cache_bytes = _cache_bytes(config, memory)
    models = (
        _with_pages(config, source, decoder, phases, parts, cache_bytes)
        for source, decoder in zip(config.models, decoders, strict=True)
        for phases in config.pools_of(source)
    )
    return assemble_loop(config, models, parts=parts, port=port)


def assemble_loop(
    config: NodeConfig,
    models: Iterable[LoadedModel[CacheT]],
    *,
    clock_s: Callable[[], float] = time.time,
    parts: PageParts | None = None,
    port: PagePort | None = None,
) -> EngineLoop:
    """Make members and schedulers around models that are loaded."""
    owners, handoffs = OwnerSlots(), count(1)
    lanes = [_lane(config, model, owners, handoffs, parts or PageParts()) for model in models]
    return EngineLoop(
        lanes, owners=owners, clock_s=clock_s, port=port, handoff_bytes=config.turn_bytes
    )


def _load(config: NodeConfig, source: ModelSource) -> LoadedDecoder:
    return load_model(
        Path(source.directory),
        dtype=_DTYPES[config.compute_dtype],
        device=config.device,
        weights=config.weights,
        deterministic=config.deterministic,
    )


def _cache_bytes(config: NodeConfig, memory: Callable[[str], DeviceMemory]) -> int:
    """Return how much each page pool may take, once all weights are loaded."""
    fraction = config.filled_fraction
    if fraction is None:
        return config.cache_bytes or DEFAULT_CACHE_BYTES
    device = memory(config.device)
    # others may be on it too
    left = min(usable_bytes(device.total_bytes, fraction) - device.held_bytes, device.free_bytes)
    if left < 1:
        raise ConfigurationError(
            f"memory_fraction {fraction!r} of {device.total_bytes} bytes of {config.device!r} leaves "
            f"nothing for pages: this node's weights take {device.held_bytes}, and {device.free_bytes} "
            "are free; use a larger fraction, smaller weights or fewer models"
        )
    return left // sum(len(config.pools_of(source)) for source in config.models)


def _with_pages(
    config: NodeConfig,
    source: ModelSource,
    decoder: LoadedDecoder,
    phases: tuple[Phase, ...],
    parts: PageParts,
    cache_bytes: int,
) -> LoadedModel[PagedCache]:
    cache_format = SERVED_FORMATS[config.cache_of(source, phases[0])]
    page_bytes = bytes_per_page(decoder.config, cache_format)
    num_pages = config.num_pages or pages_in(cache_bytes, page_bytes)
    if num_pages < 1:
        raise ConfigurationError(
            f"{cache_bytes} bytes for each pool (cache_bytes or memory_fraction) hold no page of "
            f"{source.id}, which takes {page_bytes} bytes, beside the pool's own one"
        )
    cache = PagedCache.allocate(
        decoder.config, num_pages=num_pages, cache_format=cache_format, device=config.device
    )
    started_s = time.perf_counter()
    warm_up(decoder, cache)
    _log.info("%s: first passes took %.1f s", source.id, time.perf_counter() - started_s)
    on_device = reads_on_device(cache)
    make_tracker = partial(_tracker, config, parts, on_device)
    coverage = find_coverage(decoder, cache, make_tracker, phases)
    return LoadedModel(
        source=source,
        decoder=decoder,
        revision=decoder.revision,
        cache=cache,
        num_pages=num_pages,
        num_appends=cache.num_appends,
        phases=phases,
        wire=partial(WirePages, cache),
        reads_on_device=on_device,
        has_graphs=on_device and "decode" in phases and can_be_captured(decoder),
        runs_ahead=on_device and torch.device(config.device).type != "cpu",
        origin=read_manifest(Path(source.directory)),
        weights=decoder.weights,
        coverage=coverage,
    )


def _lane(
    config: NodeConfig,
    model: LoadedModel[CacheT],
    owners: OwnerSlots,
    handoffs: Iterator[int],
    parts: PageParts,
) -> Lane:
    source = model.source
    if not config.check_pages:
        _log.warning("%s: pages are not checked: check_pages is off", source.id)
    tracker = _tracker(config, parts, model.reads_on_device, model.num_pages, model.num_appends)
    pool = PageAllocator(model.num_pages, stamp=tracker.stamp, handoffs=handoffs)
    wire = model.wire(tracker) if model.wire is not None else None
    _check_conversion(config, source, model.phases, wire)
    runner = _runner(config, model, tracker, parts)
    members = {
        phase: Member(_spec(config, model, phase, wire), pool=pool, runner=runner)
        for phase in model.phases
    }
    prefixes = parts.prefixes(pool=pool, owners=owners)
    is_whole = len(members) == len(_PHASES)
    policy = Layers(VirtualCounters(), VirtualCounters())
    scheduler = Scheduler(
        pool=pool,
        prefixes=prefixes,
        policy=policy,
        handoff=(
            adopt(members["prefill"].endpoint, members["decode"].endpoint) if is_whole else None
        ),
        limits=SchedulerLimits(
            max_batch=config.max_batch,
            max_waiting=config.max_waiting,
            chunk_tokens=config.chunk_tokens,
        ),
        cache_format=config.cache_of(source, model.phases[0]),
        incidents=IncidentLog(limit=config.max_incidents),
    )
    return Lane(
        scheduler=scheduler,
        members=members,
        pool=pool,
        prefixes=prefixes,
        tracker=tracker,
        page_wire=wire,
        upkeep=Upkeep(pool=pool, prefixes=prefixes, tracker=tracker),
        exchange=ServiceExchange(policy, model=source.id, phases=model.phases),
        vocab_size=model.decoder.config.vocab_size,
        guides=Guides(Path(source.directory)),
    )


def _check_conversion(
    config: NodeConfig, source: ModelSource, phases: tuple[Phase, ...], wire: PageWire | None
) -> None:
    """Refuse two members of one node that could not hand anything over."""
    wanted = config.cache_of(source, "decode")
    is_apart = phases == ("prefill",) and "decode" in source.phases
    if is_apart and wire is not None and wire.sent_bytes(wanted) is None:
        kept = config.cache_of(source, "prefill")
        raise ConfigurationError(
            f"prefill_cache {kept!r} of {source.id} cannot be handed over as {wanted!r}"
        )


def _runner(
    config: NodeConfig, model: LoadedModel[CacheT], tracker: Tracker, parts: PageParts
) -> StepRunner:
    if not model.reads_on_device:
        return Runner(
            decoder=model.decoder,
            cache=model.cache,
            tracker=tracker,
            vocab_limit=model.source.vocab_limit,
            device=config.device,
        )
    assert isinstance(tracker, PageTags | NoTags), "pages on a device have a tracker there"
    runner = DeviceRunner(
        decoder=model.decoder,
        cache=model.cache,
        tracker=tracker,
        device=config.device,
        max_batch=config.max_batch,
        vocab_limit=model.source.vocab_limit,
        # a tracker that makes faults makes them step by step
        has_graphs=model.has_graphs and parts.tracker is PageTags,
        runs_ahead=model.runs_ahead,
    )
    runner.warm_up()
    return runner


def _tracker(
    config: NodeConfig,
    parts: PageParts,
    reads_on_device: bool,
    num_pages: int,
    num_appends: int,
) -> Tracker:
    if not config.check_pages:
        return NoTags(config.device, has_device_lengths=reads_on_device)
    return parts.tracker(
        num_pages,
        num_appends=num_appends,
        device=config.device,
        has_device_lengths=reads_on_device,
    )


def _spec(
    config: NodeConfig, model: LoadedModel[CacheT], phase: Phase, wire: PageWire | None
) -> MemberSpec:
    return MemberSpec(
        model=model.source.id,
        phase=phase,
        weights=model.weights or config.compute_dtype,
        cache=config.cache_of(model.source, phase),
        context_tokens=min(model.decoder.config.context_tokens, model.num_pages * PAGE_TOKENS),
        revision=model.revision,
        coverage=model.coverage.get(phase, ()),
        source_revision=model.origin.source.revision if model.origin is not None else "",
        recipe=str(model.origin.recipe) if model.origin is not None else "",
        tokenizer_digest=model.source.tokenizer_digest,
        template_digest=model.source.template_digest,
        page_layout=wire.layout if wire is not None else "",
    )


_PHASES: tuple[Phase, Phase] = ("prefill", "decode")
