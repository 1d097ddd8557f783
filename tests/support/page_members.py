"""A prefill and a decode member that differ in all that may differ."""

from __future__ import annotations

from msgspec.structs import replace

from tenantry_runtime.pool.messages import MemberDescription

PREFILL = MemberDescription(
    model="m",
    phase="prefill",
    weights_format="fp8",
    cache_format="bf16",
    page_tokens=64,
    num_pages=10,
    context_tokens=4096,
    revision="r1",
    source_revision="r1",
    tokenizer_digest="t1",
    template_digest="c1",
    page_layout="60xbf16[64,576]",
)
DECODE = replace(
    PREFILL,
    phase="decode",
    weights_format="int4",
    cache_format="fp8",
    num_pages=99,
    revision="r2",
    recipe="int4",
    page_layout="60xfp8[64,576]",
)
