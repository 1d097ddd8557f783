"""The size of K2.5's and K2.6's vision tower (MoonViT), which this runtime does not load."""

from __future__ import annotations

from dataclasses import dataclass

from tenantry_runtime.models.fields import Fields

# that the projector makes one token of
_MERGED_PATCHES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionTower:
    """Dimensions of the tower and of the projector into the text decoder."""

    hidden_dim: int
    num_layers: int
    intermediate_dim: int
    patch_size: int
    grid_height: int
    """Of the learned positions."""
    grid_width: int
    text_dim: int

    @property
    def num_bytes(self) -> int:
        """Of the released BF16 tensors; a GPU holds all of them."""
        return 2 * (self._tower_values() + self._projector_values())

    def _tower_values(self) -> int:
        hidden, inner = self.hidden_dim, self.intermediate_dim
        norm = 2 * hidden
        attention = _linear(3 * hidden, hidden) + _linear(hidden, hidden)
        block = attention + _linear(inner, hidden) + _linear(hidden, inner) + 2 * norm
        patches = _linear(hidden, 3 * self.patch_size**2)
        positions = self.grid_height * self.grid_width * hidden
        return self.num_layers * block + norm + patches + positions

    def _projector_values(self) -> int:
        merged = _MERGED_PATCHES * self.hidden_dim
        return 2 * self.hidden_dim + _linear(merged, merged) + _linear(self.text_dim, merged)


def describe_vision(fields: Fields) -> VisionTower:
    """Return the tower that a `vision_config` describes; raise CheckpointError if a key is unusable."""
    fields.require("merge_kernel_size", [2, 2])
    return VisionTower(
        hidden_dim=fields.integer("vt_hidden_size"),
        num_layers=fields.integer("vt_num_hidden_layers"),
        intermediate_dim=fields.integer("vt_intermediate_size"),
        patch_size=fields.integer("patch_size"),
        grid_height=fields.integer("init_pos_emb_height"),
        grid_width=fields.integer("init_pos_emb_width"),
        text_dim=fields.integer("text_hidden_size"),
    )


def _linear(out_dim: int, in_dim: int) -> int:
    return out_dim * in_dim + out_dim
