"""One model on offer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

Capability: TypeAlias = Literal["function_calling", "reasoning", "vision", "async_queue"]
"""Named as the properties of a model page are."""

ResultShape: TypeAlias = Literal["chat.completion", "response"]

ModelName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9@._:/-]{1,128}$")]
# the bound keeps the cost of any request within 64 bits of pico-USD (`pricing`)
Price: TypeAlias = Annotated[float, Meta(ge=0, le=1e6)]


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In USD per million tokens."""

    input: Price
    cached_input: Price | None = None
    """None: cached tokens cost what the others do."""
    output: Price


class ReasoningEffort(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model makes of `reasoning_effort`, in the words of a model page."""

    supported_efforts: tuple[str, ...]
    default_effort: str
    normalizes_to: dict[str, str] = {}
    """Other accepted values, and what each of them means."""
    mandatory: bool = False
    """Whether thinking cannot be turned off."""
    default_enabled: bool = True


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model, as the catalog's file has it."""

    id: ModelName
    """Canonical: `@cf/AUTHOR/NAME`."""
    aliases: tuple[ModelName, ...] = ()
    directory: str
    """Of the checkpoint; a relative path starts at the catalog's file."""
    context_tokens: Annotated[int, Meta(ge=1)] | None = None
    """Prompt and answer together; None: what the checkpoint was made for."""
    description: str = ""
    prices: Prices | None = None
    capabilities: tuple[Capability, ...] = ()
    reasoning_effort: ReasoningEffort | None = None
    result_shape: ResultShape = "chat.completion"
    """What `/ai/run` answers with: OpenAI's object, or `{"response": …}` of older models."""
    created_at: str = "2026-01-01 00:00:00.000"
    """When it was added to the catalog, as model pages print it."""
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            datetime.fromisoformat(self.created_at)
        except ValueError as error:
            raise ValueError(f"created_at is no time: {error}") from error

    @property
    def created_s(self) -> int:
        """When it was added, in seconds since 1970; a time without a zone is UTC."""
        created = datetime.fromisoformat(self.created_at)
        return int((created if created.tzinfo else created.replace(tzinfo=UTC)).timestamp())

    @property
    def names(self) -> tuple[str, ...]:
        """All that a request may call it."""
        return (self.id, *self.aliases)

    @property
    def author(self) -> str:
        """Who made it: `moonshotai` of `@cf/moonshotai/kimi-k2.6`; empty where the id does not say."""
        parts = self.id.split("/")
        return parts[-2] if len(parts) > 1 else ""
