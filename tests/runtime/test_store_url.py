"""The URL of a store."""

from __future__ import annotations

import pytest

from tenantry_runtime.store_url import check_store_url, shown_store_url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user@host/db",
        "postgres://user:p%40ss@host:5432/db?sslmode=require",
        "postgresql:///db?host=/run/postgresql",
        "postgresql://[::1]:5432/db",
    ],
)
def test_a_url_of_postgresql_is_taken(url: str) -> None:
    check_store_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "db",
        "sqlite:///tenantry.db",
        "postgresql+asyncpg://host/db",
        "postgresql://host:port/db",
        "postgresql://[host/db",
        "postgresql://user:s3cret@host",
        "postgresql://user:s3c#ret@host/db",
    ],
)
def test_what_is_none_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ValueError, match=r"postgresql://USER|has a #") as refused:
        check_store_url(url)

    assert "s3c" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://user:s3cret@host:1/db?password=s3cret", "postgresql://user@host:1/db"),
        ("postgresql://user:s3@cret@host/db", "postgresql://user@host/db"),
        ("postgresql:///db?host=/run", "postgresql:///db"),
        ("postgresql://u:s3cret@host:port/db", "the store's URL"),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert shown_store_url(url) == shown
