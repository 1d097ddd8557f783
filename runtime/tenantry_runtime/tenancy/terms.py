"""Terms as documents: how those of a plan, an account's exceptions and a change come together.

A document has the keys of `Plan`, each only where it says something; null is "no limit".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from tenantry_runtime.errors import InvalidInput

from .plan import Plan

Path: TypeAlias = tuple[str, ...]
"""Keys from the outside in: `("models", "@cf/zai-org/glm-5.2", "context_tokens")`."""

Document: TypeAlias = Mapping[str, Any]
"""As JSON has it. Any: of each key, what `Plan` says."""

Changes: TypeAlias = Mapping[Path, object | UnsetType | None]
"""A value for each path; UNSET takes away what the document says there."""

_MESSAGE = re.compile(r"(?P<problem>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)


def to_plan(terms: Document, overrides: Document | None = None) -> Plan:
    """Return the terms that hold; those of `overrides` beat the plan's, key by key.

    Raises `InvalidInput`, which names the key.
    """
    plan = _converted(terms)
    if overrides:
        _converted(overrides)
        plan = _converted(_merged(terms, overrides))
    if plan.share.guaranteed > plan.share.ceiling:
        raise InvalidInput(
            "share.guaranteed",
            f"is {plan.share.guaranteed}, more than the ceiling, {plan.share.ceiling}",
        )
    return plan


def changed(
    document: Document, changes: Changes, *, plan: Document | None = None
) -> dict[str, Any]:
    """Return a document with changes made. Tables that say nothing any more go.

    A plan's exceptions for a model are whole: a new one begins as the plan's quota. Those of an
    account, whose `plan` is given, hold only what differs.
    """
    result: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    for path, value in changes.items():
        if plan is None and path[0] == "models" and value is not UNSET:
            models = result.setdefault("models", {})
            models.setdefault(path[1], dict(result.get("quota", {})))
        _put(result, path, value)
    return result


def leaves(document: Document, prefix: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield what a document says, value by value."""
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*prefix, key))
        else:
            yield (*prefix, key), value


def _converted(document: Document) -> Plan:
    try:
        return msgspec.convert(document, Plan)
    except msgspec.ValidationError as error:
        found = _MESSAGE.fullmatch(str(error))
        assert found is not None
        raise InvalidInput(found["path"] or "terms", found["problem"]) from error


def _merged(terms: Document, overrides: Document) -> dict[str, Any]:
    result = _overlaid(terms, overrides)
    of_plan, of_account = terms.get("models", {}), overrides.get("models", {})
    if of_account:
        others = result.get("quota", {})
        result["models"] = of_plan | {
            model: {**of_plan.get(model, others), **exceptions}
            for model, exceptions in of_account.items()
        }
    return result


def _overlaid(below: Document, above: Document) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        known = result.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            result[key] = _overlaid(known, value)
        else:
            result[key] = value
    return result


def _put(document: dict[str, Any], path: Path, value: object) -> None:
    key, *rest = path
    if rest:
        table = document.setdefault(key, {})
        _put(table, tuple(rest), value)
        if not table:
            del document[key]
    elif value is UNSET:
        document.pop(key, None)
    else:
        document[key] = value
