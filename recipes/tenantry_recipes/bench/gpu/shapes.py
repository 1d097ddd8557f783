"""What one of eight GPUs holds of the two released models, and what is asked of it.

Heads, intermediate values and dense matrices are divided by eight; the latent cache, the indexer and
the router are whole on every GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """One model on one GPU."""

    name: str
    hidden: int
    num_layers: int
    """With routed experts."""
    num_experts: int
    num_choices: int
    inner: int
    """Values inside an expert, this GPU's part."""
    num_heads: int
    """This GPU's part."""
    latent: int
    rope: int
    num_index_heads: int = 0
    """0: attention is dense."""
    index_dim: int = 0
    index_choices: int = 0
    fp8_matrices: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Outputs and columns of matrices that are released in FP8 blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much of everything."""

    rows: tuple[int, ...]
    """Of the products and the router."""
    sequences: tuple[tuple[int, int], ...]
    """Sequences and tokens of context of each, of the decode attention and the page check."""
    num_pages: int
    """Of the page conversions."""


KIMI = ModelShape(
    name="Kimi-K2.6",
    hidden=7168,
    num_layers=60,
    num_experts=384,
    num_choices=8,
    inner=2048 // 8,
    num_heads=64 // 8,
    latent=512,
    rope=64,
)
GLM = ModelShape(
    name="GLM-5.2",
    hidden=6144,
    num_layers=75,
    num_experts=256,
    num_choices=8,
    inner=2048 // 8,
    num_heads=64 // 8,
    latent=512,
    rope=64,
    num_index_heads=32,
    index_dim=128,
    index_choices=2048,
    fp8_matrices={
        "q_a and kv_a": (2048 + 576, 6144),
        "q_b": (16384 // 8, 2048),
        "output": (6144, 16384 // 8),
        "shared gate_up": (2 * 2048 // 8, 6144),
    },
)
MODELS = (KIMI, GLM)

LOAD = Load(
    rows=(1, 8, 32, 128, 512),
    sequences=((1, 32768), (8, 8192), (32, 8192), (128, 4096)),
    num_pages=4096,
)
