"""A model that this edge can answer for: its catalog entry and its text layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import anyio.to_thread

from tenantry_runtime.catalog import (
    Catalog,
    CatalogEntry,
    TokenPrices,
    checkpoint_context,
    token_prices,
)
from tenantry_runtime.core import Message, RenderOptions, Tool
from tenantry_runtime.text import Constraints, OutputState, Prompt, load_text

from .answer import Machine
from .constrained import Grammars
from .dialects.dialect import SamplingDefaults, Target


class TextLayer(Protocol):
    """A text model, as `text` has it."""

    @property
    def sampling_defaults(self) -> SamplingDefaults: ...

    @property
    def stop_token_ids(self) -> frozenset[int]: ...

    @property
    def vocab_size(self) -> int: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool], options: RenderOptions
    ) -> Prompt: ...

    def encode(self, prompt: Prompt) -> list[int]: ...

    def machine(
        self, initial: OutputState, tools: Sequence[Tool], messages: Sequence[Message]
    ) -> Machine: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Safe to share between requests."""

    entry: CatalogEntry
    text: TextLayer
    context_tokens: int
    """Prompt and answer together."""
    grammars: Grammars | None = None
    """None: answers are as the model gives them, whatever a request says of their form."""

    @property
    def prices(self) -> TokenPrices | None:
        """None: it has none."""
        prices = self.entry.prices
        return None if prices is None else token_prices(prices)

    @property
    def target(self) -> Target:
        """What a dialect parses against."""
        return Target(
            entry=self.entry,
            defaults=self.text.sampling_defaults,
            vocab_size=self.text.vocab_size,
            token_bytes=self.text.token_bytes,
            prices=self.prices,
        )


class Offers:
    """All models of a catalog, with their text layers."""

    def __init__(self, catalog: Catalog, offers: Sequence[Offer]) -> None:
        self._catalog = catalog
        self._by_id = {offer.entry.id: offer for offer in offers}

    @property
    def all(self) -> tuple[Offer, ...]:
        """In the catalog's order."""
        return tuple(self._by_id.values())

    def resolve(self, name: str) -> Offer:
        """Find a model by any of its names; raise `UnknownModel` if there is none."""
        return self._by_id[self._catalog.resolve(name).id]


async def load_offers(catalog: Catalog) -> Offers:
    """Read the text side of every checkpoint; raise `CheckpointError` for one that is unusable."""
    return Offers(
        catalog,
        [await anyio.to_thread.run_sync(_load_offer, entry) for entry in catalog.entries],
    )


def _load_offer(entry: CatalogEntry) -> Offer:
    directory = Path(entry.directory)
    text = load_text(directory)
    return Offer(
        entry=entry,
        text=text,
        grammars=Grammars(Constraints(text)),
        context_tokens=entry.context_tokens or checkpoint_context(directory),
    )
