"""JSON with comments and trailing commas, as wrangler.jsonc has it."""

from __future__ import annotations

import json
import re

# a string comes first, so that what looks like a comment in it stays
_TOKEN = re.compile(
    r"""
    (?P<string> "(?:[^"\\]|\\.)*" )
    | (?P<comment> //[^\n]* | /\*.*?\*/ )
    | (?P<comma> ,(?=(?:\s|//[^\n]*(?:\n|$)|/\*.*?\*/)*[}\]]) )
    """,
    re.VERBOSE | re.DOTALL,
)


def decode_jsonc(text: str) -> object:
    """Decode a document. Raises json.JSONDecodeError, whose line and column are those of `text`."""
    return json.loads(_TOKEN.sub(_blank, text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")))


def _blank(token: re.Match[str]) -> str:
    if token["string"] is not None:
        return token["string"]
    return re.sub(r"[^\n]", " ", token[0])
