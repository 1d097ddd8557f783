"""Patterns of routes: a host and a path, either with a star.

| pattern | matches |
|---|---|
| `example.com/shop` | that path of that host |
| `example.com/shop*` | every path that begins so |
| `*.example.com/*` | every host below that one |
| `*example.com/*` | that host, and every one below it |

Of several that match, the one with the longest host wins, then the one with the longest path. Ports,
schemes and queries are no part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tenantry_runtime.errors import InvalidInput

MAX_CHARS = 512

FIELD = "pattern"
"""What errors call it."""

_HOST = re.compile(r"(\*\.?)?[a-z0-9_]([a-z0-9_.-]{0,250}[a-z0-9])?", re.ASCII)
_PATH = re.compile(r"/[!-~]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that is written as it should be."""

    host: str
    """As it is written, in lower case, with its star."""
    path: str

    @property
    def text(self) -> str:
        return self.host + self.path

    @property
    def domain(self) -> str:
        """The host without its star."""
        return self.host.lstrip("*").lstrip(".")

    def matches_path(self, path: str) -> bool:
        if self.path.endswith("*"):
            return path.startswith(self.path[:-1])
        return path == self.path


def parse(text: str) -> Pattern:
    """Read a pattern; raise `InvalidInput`."""
    if len(text) > MAX_CHARS:
        raise refused(text[:64], f"has more than {MAX_CHARS} characters")
    bare = re.sub(r"^https?://", "", text)
    host, slash, path = bare.partition("/")
    pattern = Pattern(host.lower(), slash + path or "/")
    if not _HOST.fullmatch(pattern.host) or ".." in pattern.host:
        raise refused(text, "has no host: write it as example.com/path*")
    if not _PATH.fullmatch(pattern.path) or "*" in pattern.path[:-1] or "?" in pattern.path:
        raise refused(text, "has a path with a star before its end, a query or a space")
    return pattern


def refused(text: str, problem: str) -> InvalidInput:
    """Return the error for a pattern."""
    return InvalidInput(FIELD, f"{text!r} {problem}")


def hosts_for(host: str) -> list[str]:
    """Return every host that a pattern may have which matches a host, the longest name first."""
    labels = host.lower().split(".")
    found = [host.lower(), f"*{host.lower()}"]
    for start in range(1, len(labels)):
        parent = ".".join(labels[start:])
        found += [f"*.{parent}", f"*{parent}"]
    return found


def best(patterns: Iterable[Pattern], host: str, path: str) -> Pattern | None:
    """Return the one of the patterns that a request takes."""
    order = {each: place for place, each in enumerate(hosts_for(host))}
    matching = [each for each in patterns if each.host in order and each.matches_path(path)]
    return min(
        matching,
        # a star counts for less than an end
        key=lambda each: (order[each.host], -len(each.path.rstrip("*")), each.path[-1] == "*"),
        default=None,
    )
