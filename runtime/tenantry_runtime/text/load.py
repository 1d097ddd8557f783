"""Reading the text side of a checkpoint directory, in the layout in which it was released."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tenantry_runtime.errors import CheckpointError

from .family import Family, SamplingDefaults
from .files import read_object
from .glm import GLM
from .glm_tokenizer import GlmTokenizer
from .kimi import KIMI
from .kimi_tokenizer import CONFIG_FILE as TOKENIZER_CONFIG_FILE, KimiTokenizer
from .model import TextModel
from .sources import read_template
from .template import ChatTemplate
from .tokenizer import Tokenizer

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token")

FAMILIES: Mapping[str, Family] = {
    "kimi_k2": KIMI,
    "kimi_k25": KIMI,
    "glm_moe_dsa": GLM,
    "glm4_moe_lite": GLM,
}
"""By `model_type` in config.json."""


def random_call_id() -> str:
    """Make an id for a tool call, for families whose models write none themselves."""
    return f"call_{secrets.token_hex(12)}"


def load_text(directory: Path, *, new_call_id: Callable[[], str] = random_call_id) -> TextModel:
    """Read tokenizer, template and stop tokens of a checkpoint.

    Raises `CheckpointError`, which names the file that is missing, malformed or at odds with another.
    """
    config_path = directory / CONFIG_FILE
    config = read_object(config_path)
    model_type = config.get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        problem = f"model_type {model_type!r} is not one of {', '.join(sorted(FAMILIES))}"
        raise CheckpointError(str(config_path), None, problem)
    tokenizer = _load_tokenizer(family, directory)
    _check_vocab_size(config, tokenizer, config_path)
    generation_path = directory / GENERATION_FILE
    generation = read_object(generation_path) if generation_path.exists() else {}
    stop_token_ids = {
        *_ids_of(family.stop, tokenizer),
        *_eos_ids(config, tokenizer, config_path),
        *_eos_ids(generation, tokenizer, generation_path),
    }
    return TextModel(
        family=family,
        tokenizer=tokenizer,
        template=_load_template(directory),
        stop_token_ids=frozenset(stop_token_ids),
        sampling_defaults=_sampling_defaults(generation, family, generation_path),
        new_call_id=new_call_id,
    )


def _load_tokenizer(family: Family, directory: Path) -> Tokenizer:
    tokenizer = KimiTokenizer.load(directory) if family is KIMI else GlmTokenizer.load(directory)
    known = tokenizer.controls.ids
    if missing := {family.after_answer, family.after_calls} - known.keys():
        problem = f"lacks the added token {min(missing)!r}"
        raise CheckpointError(str(directory / TOKENIZER_CONFIG_FILE), None, problem)
    return tokenizer


def _load_template(directory: Path) -> ChatTemplate:
    source, path = read_template(directory)
    return ChatTemplate(source, file=str(path), special_tokens=_special_tokens(directory))


def _special_tokens(directory: Path) -> dict[str, str]:
    """Return the special tokens that templates know by name, as the tokenizer's configuration has them."""
    path = directory / TOKENIZER_CONFIG_FILE
    config = read_object(path) if path.exists() else {}
    found: dict[str, str] = {}
    for name in SPECIAL_TOKENS:
        token = config.get(name)
        # older files describe a token rather than just write it
        content = token.get("content") if isinstance(token, dict) else token
        if isinstance(content, str):
            found[name] = content
    return found


def _levels(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of a config that describe the text model: itself and `text_config`."""
    yield config
    if isinstance(nested := config.get("text_config"), dict):
        yield nested


def _check_vocab_size(config: Mapping[str, Any], tokenizer: Tokenizer, path: Path) -> None:
    for level in _levels(config):
        size = level.get("vocab_size")
        if isinstance(size, int) and size < tokenizer.vocab_size:
            problem = f"vocab_size {size} is less than the tokenizer's {tokenizer.vocab_size}"
            raise CheckpointError(str(path), None, problem)


def _eos_ids(config: Mapping[str, Any], tokenizer: Tokenizer, path: Path) -> Iterator[int]:
    for level in _levels(config):
        listed = level.get("eos_token_id")
        for token_id in listed if isinstance(listed, list) else [listed]:
            if token_id is None:
                continue
            if token_id not in tokenizer.controls:
                problem = f"eos_token_id {token_id!r} is no added token of the tokenizer"
                raise CheckpointError(str(path), None, problem)
            yield token_id


def _ids_of(names: tuple[str, ...], tokenizer: Tokenizer) -> list[int]:
    return [tokenizer.controls.ids[name] for name in names if name in tokenizer.controls.ids]


def _sampling_defaults(
    generation: Mapping[str, Any], family: Family, path: Path
) -> SamplingDefaults:
    numbers: dict[str, float] = {}
    for key in ("temperature", "top_p"):
        value = generation.get(key, getattr(family.sampling, key))
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value < 0:
            raise CheckpointError(str(path), None, f"{key} {value!r} is not a number from 0 on")
        numbers[key] = float(value)
    return SamplingDefaults(**numbers)
