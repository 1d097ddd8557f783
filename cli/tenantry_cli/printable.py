"""Text of others on a terminal."""

from __future__ import annotations

# what a model or a worker writes must not move the cursor, retitle the window or type into the shell
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], "\N{REPLACEMENT CHARACTER}")
_HARMLESS = {ord(character): character for character in "\n\t"}


def printable(text: str) -> str:
    """Replace control characters, but for line ends and tabs."""
    return text.translate({**_CONTROLS, **_HARMLESS})
