"""One account on one control plane: from the environment, from `login`, or from `dev`.

| variable | what it says |
|---|---|
| TENANTRY_BASE_URL | the control plane, up to and including `/client/v4` |
| TENANTRY_ACCOUNT_ID | the account |
| TENANTRY_API_TOKEN | its token, with the scope `deploy` |

What a variable does not say comes from `workerctl login`, else from what `workerctl dev` left; both
only for their own base URL, so that no token is ever sent to another server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote

import click
import httpx

from tenantry.credentials import credentials_path, load_credentials

from .saved import load_login

BASE_URL, ACCOUNT_ID, API_TOKEN = "TENANTRY_BASE_URL", "TENANTRY_ACCOUNT_ID", "TENANTRY_API_TOKEN"


class Source(StrEnum):
    """Where a token comes from."""

    ENVIRONMENT = "environment"
    LOGIN = "login"
    """In the file of `workerctl login`."""
    KEYRING = "keyring"
    """Of `workerctl login`, in the system's keyring."""
    DEV = "dev"
    """`workerctl dev` left it."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Account:
    """Where to call, and as whom. Not to be printed: it holds the token."""

    base_url: str
    """Up to and including `/client/v4`, without a slash at the end."""
    account_id: str
    api_token: str
    source: Source

    @property
    def url(self) -> str:
        """What the account's paths are below."""
        return f"{self.base_url}/accounts/{quote(self.account_id, safe='')}"


class NotSignedIn(click.ClickException):
    """There is no token to call with."""


def sign_in(environ: Mapping[str, str] = os.environ) -> Account:
    """Find the account. Raises NotSignedIn, which says what to do."""
    base_url = environ.get(BASE_URL, "").rstrip("/")
    account_id, api_token = environ.get(ACCOUNT_ID, ""), environ.get(API_TOKEN, "")
    if base_url and account_id and api_token:
        return _checked(base_url, account_id, api_token, Source.ENVIRONMENT)
    for saved_url, saved_account, saved_token, source in _saved(environ):
        if base_url in ("", saved_url):
            return _checked(
                saved_url,
                account_id or saved_account,
                api_token or saved_token,
                Source.ENVIRONMENT if api_token else source,
            )
    said = {BASE_URL: base_url, ACCOUNT_ID: account_id, API_TOKEN: api_token}
    missing = ", ".join(name for name, value in said.items() if not value)
    raise NotSignedIn(
        "you are not signed in; run `workerctl login`, or start a runtime on this machine with "
        f"`workerctl dev`, or set {missing}"
    )


def _saved(environ: Mapping[str, str]) -> list[tuple[str, str, str, Source]]:
    found: list[tuple[str, str, str, Source]] = []
    login = load_login(environ)
    if login is not None:
        source = Source.KEYRING if login.is_in_keyring else Source.LOGIN
        found.append((login.base_url.rstrip("/"), login.account_id, login.api_token, source))
    left = load_credentials(credentials_path(environ))
    if left is not None:
        found.append((left.base_url.rstrip("/"), left.account_id, left.api_token, Source.DEV))
    return found


def _checked(base_url: str, account_id: str, api_token: str, source: Source) -> Account:
    check_base_url(base_url)
    check_token(api_token)
    return Account(base_url=base_url, account_id=account_id, api_token=api_token, source=source)


def check_base_url(base_url: str) -> None:
    """Raise ClickException unless it is the URL of a server."""
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise click.ClickException(
            f"{base_url!r} is not an http:// or https:// URL, such as http://127.0.0.1:8787/client/v4"
        )


def check_token(api_token: str) -> None:
    """Raise ClickException unless it may stand in a header. The message does not have it."""
    if not api_token.isascii() or not api_token.isprintable() or " " in api_token:
        raise click.ClickException("the token holds a space, a line end or a non-ASCII character")
