"""Two members are paired when they agree in all that a sequence meets in both."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from support.page_members import DECODE, PREFILL
from tenantry_runtime.pool.pairing import differences


def test_formats_conversions_and_sizes_of_pools_may_differ() -> None:
    assert differences(PREFILL, DECODE) == []
    # a small pool holds less than the model's whole context
    assert differences(PREFILL, replace(DECODE, num_pages=7, context_tokens=7 * 64)) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "other"),
        ("source_revision", "r9"),
        ("tokenizer_digest", "t9"),
        ("template_digest", "c9"),
        ("page_tokens", 32),
        ("page_layout", "61xfp8[64,576]"),
    ],
)
def test_a_field_that_differs_is_named_with_both_values(field: str, value: Any) -> None:
    (found,) = differences(PREFILL, replace(DECODE, **{field: value}))

    assert found.startswith(field)
    assert f"{getattr(PREFILL, field)!r} at the prefill member" in found
    assert f"{value!r} at the decode member" in found


def test_all_differences_are_named() -> None:
    other = replace(DECODE, tokenizer_digest="t9", template_digest="c9")

    assert len(differences(PREFILL, other)) == 2


@pytest.mark.parametrize(
    ("prefill", "decode", "agree"),
    [
        ("60xbf16[64,576]+20xfp8[64,128]", "60xfp8[64,576]+20xfp8[64,128]", True),
        ("60xbf16[64,576]+20xfp8[64,128]", "60xfp8[64,576]", False),
        ("60xbf16[64,576]", "60xfp8[64,512]", False),
        ("60xbf16[64,576]", "60xfp8[32,576]", False),
    ],
)
def test_layouts_of_two_formats_agree_when_their_rows_do(
    prefill: str, decode: str, agree: bool
) -> None:
    found = differences(replace(PREFILL, page_layout=prefill), replace(DECODE, page_layout=decode))

    assert (not found) == agree


def test_layouts_of_one_format_agree_to_the_letter() -> None:
    ours = replace(PREFILL, page_layout="60xfp8[64,576]", cache_format="fp8")
    theirs = replace(DECODE, page_layout="60xfp8e5[64,576]")

    assert len(differences(ours, theirs)) == 1


def test_the_phases_must_be_one_of_each() -> None:
    assert differences(DECODE, PREFILL)
    assert "'prefill'" in differences(PREFILL, replace(DECODE, phase="prefill"))[0]
