"""Terms as a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from .tables import columns

if TYPE_CHECKING:
    # a base install lacks what it imports
    from tenantry_runtime.tenancy import Plan, Quota

UNLIMITED = "unlimited"


def terms_table(terms: Plan, own: Collection[tuple[str, ...]] | None = None) -> str:
    """Return a line for each term, and for what differs of a model.

    `own` are a tenant's exceptions from its plan, by path.
    """
    rows = list(_rows(terms))
    if own is None:
        return columns(
            [("TERM", "VALUE"), *((name, value) for _, name, value in rows)], right_aligned={1}
        )
    header = ("TERM", "VALUE", "FROM")
    lines = [(name, value, "tenant" if path in own else "plan") for path, name, value in rows]
    return columns([header, *lines], right_aligned={1})


def _rows(terms: Plan) -> Iterator[tuple[tuple[str, ...], str, str]]:
    for name in ("weight", "guaranteed", "ceiling"):
        yield ("share", name), name, f"{getattr(terms.share, name):g}"
    yield ("daily_neurons",), "daily neurons", _number(terms.daily_neurons)
    for field, text in _quota(terms.quota):
        yield ("quota", field), field.replace("_", " "), text
    others = dict(_quota(terms.quota))
    for model, quota in terms.models.items():
        for field, text in _quota(quota):
            if text != others[field]:
                yield ("models", model, field), f"{field.replace('_', ' ')} of {model}", text


def _quota(quota: Quota) -> Iterator[tuple[str, str]]:
    for field in quota.__struct_fields__:
        yield field, _number(getattr(quota, field))


def _number(value: float | None) -> str:
    return UNLIMITED if value is None else f"{value:,}".removesuffix(".0")
