"""Whether a prefill and a decode member may work on one sequence.

| field | must agree because |
|---|---|
| model | it is one sequence |
| source_revision | the two run the same model, however each stores its weights |
| tokenizer_digest, template_digest | token ids mean the same, and prompts are built the same way |
| page_tokens | a page is the same tokens to both |
| page_layout | a page has the same rows: in one cache format to the byte, else in number and width |

Formats of weights and cache, and how the weights were converted, may differ: that the phases differ
there is the point. What is pushed is in the decode member's cache format and layout. So may sizes of
pools, and with them how much of the model's context fits: an answer is given what fits both.
"""

from __future__ import annotations

import re

from .messages import MemberDescription

MUST_AGREE = (
    "model",
    "source_revision",
    "tokenizer_digest",
    "template_digest",
    "page_tokens",
)

# of a layout like `60xfp8[64,576]+20xkeys[64,128]`, the formats of the rows
_ROW_FORMAT = re.compile(r"(?<=x)[^\[\]+]*(?=\[)")


def differences(prefill: MemberDescription, decode: MemberDescription) -> list[str]:
    """Name each field that keeps the two apart, with both values; [] where nothing does."""
    found = [
        f"{name} is {ours!r} at the prefill member and {theirs!r} at the decode member"
        for name in MUST_AGREE
        if (ours := getattr(prefill, name)) != (theirs := getattr(decode, name))
    ]
    if _comparable_layout(prefill, decode) != _comparable_layout(decode, prefill):
        found.append(
            f"page_layout is {prefill.page_layout!r} at the prefill member "
            f"and {decode.page_layout!r} at the decode member"
        )
    for member, phase in ((prefill, "prefill"), (decode, "decode")):
        if member.phase != phase:
            found.append(f"the {phase} member's phase is {member.phase!r}")
    return found


def _comparable_layout(member: MemberDescription, other: MemberDescription) -> str:
    """Return the layout, without the rows' formats where the two caches differ by design."""
    if member.cache_format == other.cache_format:
        return member.page_layout
    return _ROW_FORMAT.sub("", member.page_layout)
