"""The formats that are compared, and models in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import torch

from tenantry_recipes.nano.models import checkpoint_directory
from tenantry_recipes.nano.serving import EngineResponder
from tenantry_runtime.cache.formats import SERVED_FORMATS, CacheName
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.engine.build import LoadedModel, assemble_loop
from tenantry_runtime.engine.config import ModelSource, NodeConfig
from tenantry_runtime.models import load_model
from tenantry_runtime.models.convert import Conversion, Recipe, convert
from tenantry_runtime.models.decoder import Decoder
from tenantry_runtime.text import Prompt, TextModel, load_text

from .damage import ShortRope, write_int3_experts
from .items import CONTEXT_TOKENS

Weights: TypeAlias = Literal["as released", "int4", "int3"]
"""Of routed experts."""

BLOCK_CONTEXTS = 8
"""That are asked about by turns, and stay in an engine's pages meanwhile."""
_PAGES_EACH = 16
"""Of a sequence alone, with room: the rest of a page, a question and the longest answer take 11."""
MAX_WAITING = 10_000
"""More items than are asked at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A model's formats."""

    name: str
    """Of the results of its items."""
    cache: CacheName = "bf16"
    weights: Weights = "as released"
    has_short_rope: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two variants of one model that are judged by the same items."""

    model: str
    title: str
    reference: Variant
    candidate: Variant
    undamaged: Variant | None = None
    """Makes it a control: the candidate is this one damaged, and must come out worse."""

    @property
    def is_control(self) -> bool:
        return self.undamaged is not None


RELEASED = Variant(name="released")
"""With a cache in BF16."""
FP8_CACHE = Variant(name="fp8 cache", cache="fp8")
INT4_EXPERTS = Variant(name="int4 experts", weights="int4")
SHORT_ROPE = Variant(name="short rope", cache="fp8", has_short_rope=True)
INT3_EXPERTS = Variant(name="int3 experts", weights="int3")


def comparisons_of(model: str) -> tuple[Comparison, ...]:
    """Return what is compared on a model; Kimi's routed experts are released in INT4."""

    def against_released(
        title: str, candidate: Variant, *, undamaged: Variant | None = None
    ) -> Comparison:
        return Comparison(
            model=model,
            title=title,
            reference=RELEASED,
            candidate=candidate,
            undamaged=undamaged,
        )

    cache = against_released("FP8 cache against BF16", FP8_CACHE)
    rope = against_released(
        "FP8 cache with 2-bit rope against BF16", SHORT_ROPE, undamaged=FP8_CACHE
    )
    if "glm" not in model:
        return cache, rope
    experts = against_released("INT4 experts against FP8", INT4_EXPERTS)
    coarse = against_released("INT3 experts against FP8", INT3_EXPERTS, undamaged=INT4_EXPERTS)
    return cache, experts, rope, coarse


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """One variant, ready to run."""

    directory: Path
    text: TextModel
    decoder: Decoder | ShortRope
    cache: CacheName
    revision: str
    """Of the weights."""

    def pages(self, num_pages: int) -> PagedCache:
        """Return an empty cache."""
        return PagedCache.allocate(
            self.decoder.config, num_pages=num_pages, cache_format=SERVED_FORMATS[self.cache]
        )

    def responder(
        self, *, streams: int, threads: int, encode: Callable[[Prompt], list[int]] | None = None
    ) -> EngineResponder:
        """Return an engine that runs at most `streams` sequences at a time, of a few contexts."""
        num_pages = BLOCK_CONTEXTS * (CONTEXT_TOKENS // PAGE_TOKENS) + streams * _PAGES_EACH
        source = ModelSource(
            id=self.directory.name,
            directory=str(self.directory),
            vocab_limit=self.text.vocab_size,
        )
        config = NodeConfig(
            models=(source,),
            cache=self.cache,
            threads=threads,
            num_pages=num_pages,
            max_batch=streams,
            max_waiting=MAX_WAITING,
        )
        pages = self.pages(num_pages)
        model = LoadedModel(
            source=source,
            decoder=self.decoder,
            revision=self.revision,
            cache=pages,
            num_pages=num_pages,
            num_appends=pages.num_appends,
        )
        return EngineResponder(self.text, assemble_loop(config, [model]), encode=encode)


def load_variant(model: str, variant: Variant, *, work: Path, threads: int) -> Loaded:
    """Load a model in a variant's formats; converted checkpoints are made under `work`."""
    torch.set_num_threads(threads)
    directory = _directory(model, variant.weights, work)
    decoder = load_model(directory)
    return Loaded(
        directory=directory,
        text=load_text(directory),
        decoder=ShortRope(decoder) if variant.has_short_rope else decoder,
        cache=variant.cache,
        revision=decoder.revision,
    )


def _directory(model: str, weights: Weights, work: Path) -> Path:
    released = checkpoint_directory(model)
    if weights == "as released":
        return released
    made = work / f"{model}-{weights}"
    if made.exists():
        return made
    if weights == "int3":
        write_int3_experts(released, made)
    else:
        recipe = Recipe(experts="int4", rest="fp8")
        convert(Conversion(source=released, destination=made, recipe=recipe), _Unheard())
    return made


class _Unheard:
    """A conversion's progress: a nano model takes a second."""

    def begin(self, total_bytes: int, num_shards: int) -> None: ...

    def advance(self, num_bytes: int) -> None: ...

    def finish_shard(self, file: str, num_bytes: int, *, is_kept: bool) -> None: ...
