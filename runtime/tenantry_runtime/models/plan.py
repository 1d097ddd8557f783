"""What a member holds on given GPUs: weights, pages, tokens.

Published figures, all of one member on 8 H200, and what gives them (the vocabulary split, MTP layers
and vision tower included, no activations within the fraction):

| figure | weights | cache | fraction |
|---|---|---|---|
| Kimi K2.6, 686,000 tokens | INT4 as released | bf16 | 0.831 |
| Kimi K2.6, 1.37 M tokens | = | fp8-576, twice as many; fp8 holds 1.36 M | 0.831 |
| GLM-5.2, 1.18 M tokens | INT4 experts, BF16 rest | fp8-656 | 0.816 |
| = | = | fp8 | 0.769 |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tenantry_runtime.cache.budget import (
    DEFAULT_MEMORY_FRACTION,
    bytes_per_page,
    num_pages,
    usable_bytes,
)
from tenantry_runtime.cache.formats import CacheFormat
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.errors import ConfigurationError

from .checkpoint import read_json
from .config import ModelConfig
from .fields import Fields
from .kimi.vision import VisionTower, describe_vision
from .loader import load_config
from .released import RELEASED
from .sizes import WeightFormat, weight_bytes

GPU_BYTES: Mapping[str, int] = {
    "h100": 81_559 << 20,
    "h200": 143_771 << 20,
    "b200": 183_359 << 20,
}
"""Memory as nvidia-smi states it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedModel:
    """What a plan is made from."""

    name: str
    config: ModelConfig
    released_weights: WeightFormat | None
    """None: a directory, whose weights may be planned in any form."""
    vision: VisionTower | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The memory that a member may fill."""

    num_gpus: int
    bytes_per_gpu: int
    memory_fraction: float = DEFAULT_MEMORY_FRACTION
    """Of each GPU, for weights, activations and pages."""
    activation_bytes: int = 0
    """Per GPU, within the fraction."""

    def __post_init__(self) -> None:
        if not 0 < self.memory_fraction <= 1:
            raise ConfigurationError(
                f"memory_fraction must be above 0 and at most 1, not {self.memory_fraction!r}"
            )
        if self.num_gpus < 1:
            raise ConfigurationError(f"num_gpus must be at least 1, not {self.num_gpus!r}")
        if self.activation_bytes < 0:
            raise ConfigurationError(
                f"activation_bytes must be at least 0, not {self.activation_bytes!r}"
            )

    @property
    def usable_bytes(self) -> int:
        """Per GPU."""
        return usable_bytes(self.bytes_per_gpu, self.memory_fraction)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """What fits. The pages are the same on every GPU, so tokens are the member's, not one GPU's."""

    model_weight_bytes: int
    """Of the whole model, as in its files."""
    gpu_weight_bytes: int
    """Per GPU: what is not split, each holds."""
    gpu_cache_bytes: int
    """Per GPU: what weights and activations leave."""
    bytes_per_token: int
    num_pages: int
    context_tokens: int

    @property
    def num_tokens(self) -> int:
        return self.num_pages * PAGE_TOKENS

    def num_sequences(self, length_tokens: int) -> int:
        """Return how many sequences of this length fit; raise ConfigurationError where none can be."""
        if not 0 < length_tokens <= self.context_tokens:
            raise ConfigurationError(
                f"a sequence has 1 to {self.context_tokens} tokens in this model, "
                f"not {length_tokens!r}"
            )
        return self.num_pages // -(-length_tokens // PAGE_TOKENS)


def find_model(name: str) -> PlannedModel:
    """Return a released model, or that of a directory's config.json; raise ConfigurationError."""
    # the catalog's ids have a maker before the name; a directory's name begins with no @
    released = RELEASED.get(name.rpartition("/")[2] if name.startswith("@") else name)
    if released is not None:
        return PlannedModel(
            name=name,
            config=released.config,
            released_weights=released.weights,
            vision=released.vision,
        )
    directory = Path(name)
    if not directory.is_dir():
        raise ConfigurationError(
            f"{name!r} is neither a released model ({', '.join(RELEASED)}) "
            "nor a directory with a config.json"
        )
    return PlannedModel(
        name=name,
        config=load_config(directory),
        released_weights=None,
        vision=_vision(directory),
    )


def plan_member(
    model: PlannedModel,
    *,
    weights: WeightFormat,
    cache: CacheFormat,
    gpus: Gpus,
    has_vision: bool = True,
) -> MemberPlan:
    """Return what fits on `gpus`; raise ConfigurationError if that is not one page."""
    # each GPU holds the whole tower
    vision_bytes = model.vision.num_bytes if model.vision is not None and has_vision else 0
    whole = weight_bytes(model.config, weights).total + vision_bytes
    share = weight_bytes(model.config, weights, num_gpus=gpus.num_gpus).total + vision_bytes
    taken = share + gpus.activation_bytes
    page_bytes = bytes_per_page(model.config, cache)
    pages = num_pages(gpus.usable_bytes - taken, page_bytes)
    if not pages:
        raise ConfigurationError(
            f"{model.name} does not fit: of {_gib(gpus.usable_bytes)} per GPU "
            f"({gpus.memory_fraction!r} of {_gib(gpus.bytes_per_gpu)}) weights and activations "
            f"take {_gib(taken)}; use more GPUs, smaller weights or a larger memory fraction"
        )
    return MemberPlan(
        model_weight_bytes=whole,
        gpu_weight_bytes=share,
        gpu_cache_bytes=gpus.usable_bytes - taken,
        bytes_per_token=cache.bytes_per_token(model.config),
        num_pages=pages,
        context_tokens=model.config.context_tokens,
    )


def _vision(directory: Path) -> VisionTower | None:
    file = directory / "config.json"
    fields = Fields(read_json(file), file=str(file))
    # nano checkpoints of the same model type have none
    return describe_vision(fields.sub("vision_config")) if "vision_config" in fields else None


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"
