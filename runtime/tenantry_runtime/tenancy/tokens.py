"""API tokens: how one is made, and the digest by which it is known.

The store keeps digests alone. A plain SHA-256 is enough: a token is 256 random bits, so there is
nothing to guess, and no slow hash to pay for on each request.
"""

from __future__ import annotations

import hashlib
import secrets

TOKEN_PREFIX = "tenantry_"
"""Lets people and secret scanners recognize a token."""

TOKEN_BYTES = 32


def new_secret() -> str:
    """Draw a token of 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def new_token_id() -> str:
    """Draw an id by which a token can be named in listings and logs."""
    return "tok_" + secrets.token_hex(8)


def digest(secret: str) -> bytes:
    """Return what the store keeps of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
