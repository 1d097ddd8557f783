"""The expert keys of `config.json`, which both families share."""

from __future__ import annotations

from .config import MoeConfig
from .fields import Fields


def moe_config(fields: Fields) -> MoeConfig:
    """Return the router and expert dimensions that `fields` describes; raise CheckpointError."""
    config = MoeConfig(
        num_experts=fields.integer("n_routed_experts"),
        num_experts_per_token=fields.integer("num_experts_per_tok"),
        intermediate_dim=fields.integer("moe_intermediate_size"),
        num_shared_experts=fields.integer("n_shared_experts"),
        routed_scaling=fields.number("routed_scaling_factor"),
        normalize_weights=fields.flag("norm_topk_prob", True),
        num_groups=fields.integer("n_group", 1),
        num_groups_per_token=fields.integer("topk_group", 1),
    )
    if not 0 < config.num_experts_per_token <= config.num_experts:
        raise fields.fail(
            "num_experts_per_tok",
            f"is {config.num_experts_per_token}, of {config.num_experts} experts",
        )
    # a group's score is that of its two best experts
    if config.num_groups > 1 and (
        config.num_experts % config.num_groups or config.num_experts < 2 * config.num_groups
    ):
        raise fields.fail(
            "n_group", f"is {config.num_groups}, which does not part {config.num_experts} experts"
        )
    return config
