"""A map of pages as a picture: a pixel a page, the hue is the owner's, the brightness the state's.

PNG as the specification (third edition, W3C 2025) has it: 8-bit RGB, no interlace, no filter.
"""

from __future__ import annotations

import base64
import colorsys
import struct
import zlib

from tenantry_runtime.pool.page_map import BEYOND, FIRST_TENANT, NOBODY, PUBLIC, STATES, PageMap

WIDTH = 128
"""Pages in a row."""

_GOLDEN_ANGLE = 0.618033988749895
_LIGHTNESS = {"private": 0.45, "shared": 0.65, "quiescing": 0.3}
_FREE, _QUARANTINED = (0x88, 0x8C, 0x92), (0xE0, 0x30, 0x30)
_PUBLIC, _BEYOND = (0.0, 0.0), (0.0, 0.35)


def color(owner: int, state: str) -> tuple[int, int, int]:
    """Return red, green and blue of a page."""
    if state == "quarantined":
        return _QUARANTINED
    if owner == NOBODY or state == "free":
        return _FREE
    hue, saturation = _hue(owner)
    red, green, blue = colorsys.hls_to_rgb(hue, _LIGHTNESS[state], saturation)
    return round(255 * red), round(255 * green), round(255 * blue)


def css(owner: int, state: str = "private") -> str:
    return "#{:02x}{:02x}{:02x}".format(*color(owner, state))


def _hue(owner: int) -> tuple[float, float]:
    match owner:
        case 1:
            assert owner == PUBLIC
            return _PUBLIC
        case 255:
            assert owner == BEYOND
            return _BEYOND
        case _:
            # far from those before it, however many there are
            return (owner - FIRST_TENANT) * _GOLDEN_ANGLE % 1.0, 0.65


def png(pool: PageMap) -> bytes:
    """Return the picture; the last row is filled up with black."""
    colors = {
        (owner, state): bytes(color(owner, STATES[state]))
        for owner, state in set(zip(pool.owners, pool.states, strict=True))
    }
    pixels = b"".join(colors[pair] for pair in zip(pool.owners, pool.states, strict=True))
    height = max(-(-len(pool.states) // WIDTH), 1)
    pixels = pixels.ljust(3 * WIDTH * height, b"\x00")
    # each row begins with the number of its filter: none
    rows = b"".join(
        b"\x00" + pixels[3 * WIDTH * row : 3 * WIDTH * (row + 1)] for row in range(height)
    )
    header = struct.pack(">IIBBBBB", WIDTH, height, 8, 2, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(rows)),
            _chunk(b"IEND", b""),
        ]
    )


def data_url(pool: PageMap) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(pool)).decode()}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
