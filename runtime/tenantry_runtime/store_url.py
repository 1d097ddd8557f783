"""The URL of a PostgreSQL store: what it may be, and how it is shown.

Apart from `tenancy`, whose import takes the time of SQLAlchemy's.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

SCHEMES = ("postgresql", "postgres")


def check_store_url(url: str) -> None:
    """Raise `ValueError` with what is wrong, without the URL: it may hold a password."""
    parsed = _parsed(url)
    if parsed is None or parsed.scheme not in SCHEMES:
        raise ValueError("must be postgresql://USER@HOST/DATABASE")
    if not parsed.path.strip("/"):
        raise ValueError("names no database after the host: postgresql://USER@HOST/DATABASE")
    if parsed.fragment:
        raise ValueError("has a #, which must be %23 in a user's name or password")


def shown_store_url(url: str) -> str:
    """Return a URL without what may be a secret: for messages and logs."""
    parsed = _parsed(url)
    if parsed is None:
        return "the store's URL"
    user = parsed.username or ""
    host = parsed.netloc.rpartition("@")[2]
    return f"{parsed.scheme}://{user}{'@' if user else ''}{host}{parsed.path}"


def _parsed(url: str) -> SplitResult | None:
    try:
        parsed = urlsplit(url)
        # read here, as it is refused here
        _ = parsed.port
    except ValueError:
        return None
    return parsed
