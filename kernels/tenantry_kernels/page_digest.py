"""A 64-bit digest of a page's bytes, the same on every device.

It finds faults (a wrong, stale, swapped or torn page), not forgery. All arithmetic is modulo 2^64:

| step | value |
|---|---|
| words | w[i], i = 0 .. n - 1: the bytes in eights, little-endian |
| mix(x) | x ^= x >> 33; x *= 0xFF51AFD7ED558CCD; x ^= x >> 33; x *= 0xC4CEB9FE1A85EC53; x ^= x >> 33 |
| sum | of mix(w[i] + (i + 1) * 0x9E3779B97F4A7C15) over all i |
| digest | mix(sum + 8 * n) |

`mix` is a bijection (MurmurHash3's finalizer), so a change of one word always changes the digest;
its argument depends on the place, so an exchange does too, but for one chance in 2^64. The sum has
any order, which lets a GPU's threads share it. `bind` ties a digest to what else a page must be:
the pages of a layer group, a request, a logical index, a tag.

B pages, n words of 8 bytes each.
"""

from __future__ import annotations

import torch

STEP = 0x9E3779B97F4A7C15
FIRST_FACTOR = 0xFF51AFD7ED558CCD
SECOND_FACTOR = 0xC4CEB9FE1A85EC53
SHIFT = 33
WORD_BYTES = 8

_MODULUS = 1 << 64


def page_digests(pages: torch.Tensor) -> torch.Tensor:
    """Return int64 digests [B] of contiguous pages [B, ...] of any dtype, 8 * n bytes each."""
    word_Bn = pages.flatten(1).view(torch.uint8).view(torch.int64)
    num_words = word_Bn.shape[1]
    place_n = torch.arange(1, num_words + 1, device=pages.device) * signed(STEP)
    total_B = _mix(word_Bn + place_n).sum(1)
    return _mix(total_B + WORD_BYTES * num_words)


def bind(digest: int, *fields: int) -> int:
    """Return the digest of a digest and further integers, in their order; all int64."""
    for field in fields:
        digest = _mix_one((digest + STEP + _mix_one(field + STEP)) % _MODULUS)
    return signed(digest)


def signed(value: int) -> int:
    """Return the int64 with the bits of a value modulo 2^64."""
    value %= _MODULUS
    return value - _MODULUS if value >> 63 else value


def _mix(word: torch.Tensor) -> torch.Tensor:
    for factor in (FIRST_FACTOR, SECOND_FACTOR):
        word = (word ^ _shifted(word)) * signed(factor)
    return word ^ _shifted(word)


def _shifted(word: torch.Tensor) -> torch.Tensor:
    # int64 shifts carry the sign along; the mask takes it off again
    return (word >> SHIFT) & ((1 << (64 - SHIFT)) - 1)


def _mix_one(word: int) -> int:
    word %= _MODULUS
    for factor in (FIRST_FACTOR, SECOND_FACTOR):
        word = (word ^ word >> SHIFT) * factor % _MODULUS
    return word ^ word >> SHIFT
