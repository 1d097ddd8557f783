"""All models on offer, found by any of their names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from tenantry_runtime.errors import ConfigurationError, UnknownModel

from .entry import CatalogEntry

MAX_NAME_CHARS = 200
"""Of a name in an error message, and of one for which near matches are sought (quadratic time)."""

MAX_NEAR = 3


class Catalog:
    """Immutable. Raises `ConfigurationError` where two entries claim one name."""

    def __init__(self, entries: Sequence[CatalogEntry]) -> None:
        self.entries = tuple(entries)
        self._by_name: dict[str, CatalogEntry] = {}
        for entry in self.entries:
            for name in entry.names:
                if name in self._by_name:
                    raise ConfigurationError(f"the catalog has the name {name!r} twice")
                self._by_name[name] = entry

    def resolve(self, name: str) -> CatalogEntry:
        """Find a model by id or alias; raise `UnknownModel`, with near matches, if there is none."""
        if (entry := self._by_name.get(name)) is not None:
            return entry
        shown = name[:MAX_NAME_CHARS]
        raise UnknownModel(shown, self._near(shown))

    def _near(self, name: str) -> tuple[str, ...]:
        """Name the entries that resemble `name`, each by that name of its own which does most."""
        known = {own.lower(): own for own in self._by_name}
        close = difflib.get_close_matches(name.lower(), known, n=len(known), cutoff=0.6)
        best: dict[str, str] = {}
        for own in (known[match] for match in close):
            best.setdefault(self._by_name[own].id, own)
        return tuple(best.values())[:MAX_NEAR]
