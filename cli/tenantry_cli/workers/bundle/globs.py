"""Globs with `**`, as wrangler's rules have them."""

from __future__ import annotations

import re
from functools import lru_cache


def matches(path: str, glob: str) -> bool:
    """Tell whether a path with slashes is one that a glob means; `**/` is any folders, or none."""
    return _pattern(glob).fullmatch(path) is not None


@lru_cache(maxsize=128)
def _pattern(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meanings.get(part, re.escape(part)) for part in parts))
