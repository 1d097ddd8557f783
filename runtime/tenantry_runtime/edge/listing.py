"""`GET …/ai/{models,tasks,authors}/search`: the models on offer, a page at a time, and what they are."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenantry_runtime.catalog import CatalogEntry, Prices
from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.tenancy import Scope

from . import envelope
from .authorization import by_token
from .offer import Offer
from .reply import JSON
from .services import Services

DEFAULT_PER_PAGE = 50
MAX_PER_PAGE = 1000

SOURCE = 1
"""The number that Cloudflare gives to models of its own platform."""

TRUE = "true"
"""Flags are strings in a model's properties."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    description: str


TEXT_GENERATION = Task(
    id="c329a1f9-323d-4e91-b2aa-582dd4188d34",
    name="Text Generation",
    description="Family of generative text models, such as large language models (LLM), that can be "
    "adapted for a variety of natural language tasks.",
)


class Author(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str


class Property(msgspec.Struct, frozen=True, kw_only=True):
    property_id: str
    # Any: a string, a list or an object, whatever the property is
    value: Any


class PriceOutput(msgspec.Struct, frozen=True, kw_only=True):
    unit: str
    price: float
    currency: str = "USD"


class ModelOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A model as model pages describe it."""

    id: str
    source: int = SOURCE
    name: str
    description: str
    task: Task = TEXT_GENERATION
    created_at: str
    tags: tuple[str, ...]
    properties: list[Property]


async def search_models(request: Request, services: Services) -> Response:
    """List the models that fit the query."""
    await _authenticate(request, services)
    shown, place = find_models(services.offers.all, request.query_params)
    return Response(envelope.success(shown, place), headers=JSON)


def find_models(
    offers: Sequence[Offer], query: Mapping[str, str]
) -> tuple[list[ModelOutput], envelope.ResultInfo]:
    """Return a page of the models that fit a query; raise `InvalidInput` for one that is none."""
    page = _number(query, "page", default=1, maximum=1 << 31)
    per_page = _number(query, "per_page", default=DEFAULT_PER_PAGE, maximum=MAX_PER_PAGE)
    found = _matching(offers, query)
    shown = found[(page - 1) * per_page : page * per_page]
    place = envelope.ResultInfo(
        page=page, per_page=per_page, count=len(shown), total_count=len(found)
    )
    return [_model(offer) for offer in shown], place


def _matching(offers: Sequence[Offer], query: Mapping[str, str]) -> list[Offer]:
    """Filter. No model here is experimental, so `hide_experimental` hides none."""
    search = query.get("search", "").lower()
    author = query.get("author", "").lower()
    task = query.get("task", TEXT_GENERATION.name).lower()
    source = query.get("source", str(SOURCE))
    if task not in ("", TEXT_GENERATION.id, TEXT_GENERATION.name.lower()) or source != str(SOURCE):
        return []
    return [
        offer
        for offer in offers
        if author in ("", offer.entry.author.lower()) and search in _searched(offer.entry)
    ]


def _searched(entry: CatalogEntry) -> str:
    return "\n".join([*entry.names, entry.description]).lower()


def _number(query: Mapping[str, str], name: str, *, default: int, maximum: int) -> int:
    text = query.get(name, str(default))
    # isdecimal alone would take the digits of every script
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and 1 <= int(text) <= maximum):
        raise InvalidInput(f"?{name}", f"must be a number from 1 to {maximum}")
    return int(text)


async def search_tasks(request: Request, services: Services) -> Response:
    """List what models are for: here, one thing."""
    await _authenticate(request, services)
    return Response(envelope.success([TEXT_GENERATION]), headers=JSON)


async def search_authors(request: Request, services: Services) -> Response:
    """List who has made the models."""
    await _authenticate(request, services)
    names = dict.fromkeys(offer.entry.author for offer in services.offers.all)
    authors = [Author(id=_id(f"author:{name}"), name=name) for name in names if name]
    return Response(envelope.success(authors), headers=JSON)


async def _authenticate(request: Request, services: Services) -> None:
    await by_token(services.authenticator, Scope.RUN)(request)


def _id(name: str) -> str:
    # the same thing has the same id on every installation
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def _model(offer: Offer) -> ModelOutput:
    entry = offer.entry
    return ModelOutput(
        id=_id(entry.id),
        name=entry.id,
        description=entry.description,
        created_at=entry.created_at,
        tags=entry.tags,
        properties=_properties(offer),
    )


def _properties(offer: Offer) -> list[Property]:
    entry = offer.entry
    properties = [Property(property_id="context_window", value=str(offer.context_tokens))]
    if entry.prices is not None:
        properties.append(Property(property_id="price", value=_prices(entry.prices)))
    properties += [Property(property_id=name, value=TRUE) for name in entry.capabilities]
    if entry.reasoning_effort is not None:
        properties.append(Property(property_id="reasoning_effort", value=entry.reasoning_effort))
    if entry.aliases:
        properties.append(Property(property_id="aliases", value=entry.aliases))
    return properties


def _prices(prices: Prices) -> list[PriceOutput]:
    units = {
        "input": prices.input,
        "output": prices.output,
        "cached input": prices.cached_input,
    }
    return [
        PriceOutput(unit=f"per M {kind} tokens", price=price)
        for kind, price in units.items()
        if price is not None
    ]
