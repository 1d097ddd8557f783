"""Lists as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    # importing the SDK takes a tenth of a second
    from tenantry import Model

# property of a model -> what the table calls it
_FEATURES = {
    "function_calling": "tools",
    "reasoning": "reasoning",
    "vision": "vision",
    "async_queue": "batch",
}
_PRICE_UNITS = ("per M input tokens", "per M cached input tokens", "per M output tokens")


def models_table(models: Sequence[Model]) -> str:
    """One line per model: context in tokens, prices per million tokens, features."""
    header = ("MODEL", "CONTEXT", "IN", "CACHED", "OUT", "FEATURES")
    rows = [
        (
            model.name,
            str(model.property_value("context_window") or "-"),
            *(_price(model, unit) for unit in _PRICE_UNITS),
            ", ".join(_features(model)) or "-",
        )
        for model in models
    ]
    return columns([header, *rows], right_aligned={1, 2, 3, 4})


def columns(rows: Sequence[tuple[str, ...]], *, right_aligned: set[int]) -> str:
    """Return rows of as many cells each as lines; `right_aligned` holds columns by number."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if index in right_aligned else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def _features(model: Model) -> list[str]:
    # a property's value is a word where it can be had or not, and an object where it has options
    return [
        word
        for property_id, word in _FEATURES.items()
        if model.property_value(property_id) not in (None, False, "false")
    ]


def _price(model: Model, unit: str) -> str:
    prices = model.property_value("price")
    if isinstance(prices, list):
        for price in cast("list[object]", prices):
            if isinstance(price, dict):
                fields = cast("dict[str, object]", price)
                if fields.get("unit") == unit:
                    return f"${fields.get('price')}"
    return "-"
