"""The token that a request carries."""

from __future__ import annotations

from starlette.datastructures import Headers


def bearer_token(headers: Headers) -> str | None:
    """Return the bearer token; None for another scheme, or without the header."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
