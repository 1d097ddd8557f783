"""Text of others on a terminal."""

from __future__ import annotations

# what a model or a worker writes must not move the cursor, retitle the window or type into the shell,
# nor turn the order of what is read around (Unicode's bidirectional controls, UAX 9 section 2)
_TURNING = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = dict.fromkeys(
    [*range(0x20), *range(0x7F, 0xA0), *_TURNING], "\N{REPLACEMENT CHARACTER}"
)
_HARMLESS = {ord(character): character for character in "\n\t"}


def printable(text: str) -> str:
    """Replace control characters, those that turn text around too, but for line ends and tabs."""
    return text.translate({**_CONTROLS, **_HARMLESS})
