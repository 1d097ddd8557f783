"""Random weights for a Kimi-type checkpoint of which only the configuration is there."""

from __future__ import annotations

from pathlib import Path

import torch

from tenantry_recipes.nano.parameters import ParameterSource
from tenantry_runtime.models.decoder import Decoder
from tenantry_runtime.models.loader import load_config


def random_weights(directory: Path) -> dict[str, torch.Tensor]:
    """Draw what a decoder of this configuration is made of, with a seed: BF16, by released names.

    Names have no `language_model.` before them.
    """
    source = ParameterSource("kimi", seed=0)
    # a decoder asks for all that it is made of
    Decoder(load_config(directory), source)
    weights = {name: weight.detach().bfloat16() for name, weight in source.parameters.items()}
    return weights | source.router_bias
