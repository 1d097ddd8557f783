"""Write what a nano model needs before training: `python -m tenantry_recipes.nano.prepare NAME`.

The vocabulary is built from the training tasks' own texts; config.json takes its ids.
"""

from __future__ import annotations

import argparse
import json

from . import dims
from .examples import corpus
from .models import NANO_MODELS, checkpoint_directory
from .tasks.task import GLM, KIMI
from .vocabulary import build_glm, build_kimi

CORPUS_EXAMPLES = 12_000
"""Enough that the rarest of the tasks' words occur some ten times."""


def prepare(name: str) -> None:
    """Write tokenizer files, generation_config.json and config.json of model `name`."""
    directory = checkpoint_directory(name)
    if name.startswith("kimi"):
        config = dims.kimi_config(build_kimi(corpus(0, CORPUS_EXAMPLES, KIMI), directory))
    else:
        config = dims.glm_config(build_glm(corpus(0, CORPUS_EXAMPLES, GLM), directory))
    text = json.dumps(config, indent=2, sort_keys=True)
    (directory / "config.json").write_text(text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=sorted(NANO_MODELS))
    prepare(parser.parse_args().model)


if __name__ == "__main__":
    main()
