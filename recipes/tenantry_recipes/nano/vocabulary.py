"""Vocabularies for the nano checkpoints: the released file layouts and special tokens, about 4,000 ids.

Both are byte-level BPE over the released split patterns, with one difference in training: no merge
crosses a digit, so that every digit is one token and numbers can be learned digit by digit. The split
patterns group digits in threes all the same; there is just no merge to use it.

| | Kimi | GLM |
|---|---|---|
| ordinary tokens | 0 .. size - 257 | 0 .. size - 61 |
| special tokens | the last 256 ids, at the released offsets, most of them reserved | the next 36 |
| ids of no token | none | the last 24: their logits must be masked |
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tenantry_runtime.text.glm_tokenizer import byte_letters
from tenantry_runtime.text.kimi_tokenizer import SPLIT_PATTERN as KIMI_SPLIT_PATTERN

# GLM's and GPT-4's: like Kimi's, without its rules for case and Han
GLM_SPLIT_PATTERN = "|".join(
    [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

KIMI_NUM_RESERVED = 256

# offset from the first reserved id -> string, whether decoders hide it
KIMI_SPECIALS: dict[int, tuple[str, bool]] = {
    0: ("[BOS]", True),
    1: ("[EOS]", True),
    2: ("<|im_end|>", True),
    3: ("<|im_user|>", True),
    4: ("<|im_assistant|>", True),
    6: ("<|start_header_id|>", True),
    7: ("<|end_header_id|>", True),
    9: ("[EOT]", True),
    10: ("<|im_system|>", True),
    11: ("<|tool_calls_section_begin|>", False),
    12: ("<|tool_calls_section_end|>", False),
    13: ("<|tool_call_begin|>", False),
    14: ("<|tool_call_argument_begin|>", False),
    15: ("<|tool_call_end|>", False),
    17: ("<|im_middle|>", True),
    18: ("<|media_begin|>", True),
    19: ("<|media_content|>", True),
    20: ("<|media_end|>", True),
    21: ("<|media_pad|>", True),
    22: ("<think>", False),
    23: ("</think>", False),
    254: ("[UNK]", True),
    255: ("[PAD]", True),
}

# in the order of their ids; the first 18 are those that decoders hide
GLM_SPECIALS = """
<|endoftext|> [MASK] [gMASK] [sMASK] <sop> <eop> <|system|> <|user|> <|assistant|> <|observation|>
<|begin_of_image|> <|end_of_image|> <|begin_of_video|> <|end_of_video|> <|begin_of_audio|>
<|end_of_audio|> <|begin_of_transcription|> <|end_of_transcription|>
<|code_prefix|> <|code_middle|> <|code_suffix|> <think> </think> <tool_call> </tool_call>
<tool_response> </tool_response> <arg_key> </arg_key> <arg_value> </arg_value> /nothink
<|begin_of_box|> <|end_of_box|> <|image|> <|video|>
""".split()
GLM_NUM_HIDDEN = 18
GLM_NUM_PADDING = 24


def build_kimi(corpus: Iterable[str], directory: Path, vocab_size: int = 4096) -> dict[str, Any]:
    """Train on the corpus and write tiktoken.model, tokenizer_config.json, generation_config.json.

    Returns what config.json must say of them. The same corpus gives the same files; one with too few
    words gives a smaller vocabulary.
    """
    tokenizer = _train(corpus, KIMI_SPLIT_PATTERN, vocab_size - KIMI_NUM_RESERVED)
    ranks = _in_rank_order(tokenizer)
    lines = [b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(ranks)]
    (directory / "tiktoken.model").write_bytes(b"".join(lines))
    first = len(ranks)
    specials = {first + offset: special for offset, special in KIMI_SPECIALS.items()}
    names = {name: token_id for token_id, (name, _) in specials.items()}
    _write_json(
        directory / "tokenizer_config.json",
        {
            "added_tokens_decoder": {
                str(token_id): _added_token(name, is_hidden)
                for token_id, (name, is_hidden) in specials.items()
            },
            "bos_token": "[BOS]",
            "clean_up_tokenization_spaces": False,
            "eos_token": "[EOS]",
            "pad_token": "[PAD]",
            "tokenizer_class": "TikTokenTokenizer",
            "unk_token": "[UNK]",
        },
    )
    _write_generation_config(directory, names["<|im_end|>"], names["[PAD]"])
    return {
        "bos_token_id": names["[BOS]"],
        "eos_token_id": names["<|im_end|>"],
        "pad_token_id": names["[PAD]"],
        "vocab_size": first + KIMI_NUM_RESERVED,
    }


def build_glm(corpus: Iterable[str], directory: Path, vocab_size: int = 4096) -> dict[str, Any]:
    """Train on the corpus and write tokenizer.json, tokenizer_config.json, generation_config.json.

    Returns what config.json must say of them. The same corpus gives the same files; one with too few
    words gives a smaller vocabulary.
    """
    num_ordinary = vocab_size - len(GLM_SPECIALS) - GLM_NUM_PADDING
    tokenizer = _train(corpus, GLM_SPLIT_PATTERN, num_ordinary)
    tokenizer.pre_tokenizer = _pre_tokenizer(GLM_SPLIT_PATTERN)
    tokenizer.decoder = decoders.ByteLevel()
    hidden = GLM_SPECIALS[:GLM_NUM_HIDDEN]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in hidden])
    shown = GLM_SPECIALS[GLM_NUM_HIDDEN:]
    tokenizer.add_tokens([AddedToken(name, normalized=False, special=False) for name in shown])
    (directory / "tokenizer.json").write_text(tokenizer.to_str() + "\n")
    _write_json(
        directory / "tokenizer_config.json",
        {
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|endoftext|>",
            "extra_special_tokens": hidden,
            "pad_token": "<|endoftext|>",
            "padding_side": "left",
            "tokenizer_class": "TokenizersBackend",
        },
    )
    ids = {token.content: at for at, token in tokenizer.get_added_tokens_decoder().items()}
    eos = [ids["<|endoftext|>"], ids["<|user|>"], ids["<|observation|>"]]
    _write_generation_config(directory, eos, eos[0])
    return {
        "eos_token_id": eos,
        "pad_token_id": eos[0],
        "vocab_size": tokenizer.get_vocab_size() + GLM_NUM_PADDING,
    }


def _pre_tokenizer(pattern: str, *extra: pre_tokenizers.PreTokenizer) -> Any:
    # the library's pre-tokenizers have no common type in its stubs
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            *extra,
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _train(corpus: Iterable[str], pattern: str, vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = _pre_tokenizer(pattern, digits)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        # a merge seen once is chance, not a word
        min_frequency=2,
        show_progress=False,
        initial_alphabet=list(byte_letters().values()),
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def _in_rank_order(tokenizer: Tokenizer) -> list[bytes]:
    """Return the tokens as bytes: the 256 single ones as released, then the merges as learned."""
    letters = byte_letters()
    by_letter = {letter: byte for byte, letter in letters.items()}
    # a token's id is the order in which it was first merged
    merged = sorted(
        ((token_id, token) for token, token_id in tokenizer.get_vocab().items() if len(token) > 1)
    )
    singles = [bytes([byte]) for byte in letters]
    return singles + [bytes(by_letter[letter] for letter in token) for _, token in merged]


def _added_token(name: str, is_hidden: bool) -> dict[str, Any]:
    return {
        "content": name,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": is_hidden,
    }


def _write_generation_config(directory: Path, eos: int | list[int], pad: int) -> None:
    # less heat than the released models have: these were trained on tasks with one right answer
    sampling = {"do_sample": True, "temperature": 0.6, "top_p": 0.95}
    _write_json(
        directory / "generation_config.json",
        {**sampling, "eos_token_id": eos, "pad_token_id": pad},
    )


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
