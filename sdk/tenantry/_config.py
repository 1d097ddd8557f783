"""Which server to call and as whom: arguments, else the environment, else the credentials file."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

import httpx

from .credentials import credentials_path, load_credentials
from .errors import ConfigurationError

BASE_URL_VARIABLE = "TENANTRY_BASE_URL"
ACCOUNT_ID_VARIABLE = "TENANTRY_ACCOUNT_ID"
API_TOKEN_VARIABLE = "TENANTRY_API_TOKEN"

# what may stand in an Authorization header
_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Config:
    """One account on one server."""

    base_url: str
    """Up to and including `/client/v4`, without a slash at the end."""
    account_id: str
    api_token: str

    def __post_init__(self) -> None:
        if not _is_http_url(self.base_url):
            raise ConfigurationError(
                f"base_url is {self.base_url!r}; it must be an http:// or https:// URL, "
                "such as 'http://127.0.0.1:8787/client/v4'"
            )
        # the token itself stays out of the message, which may be logged
        if not _TOKEN.fullmatch(self.api_token):
            raise ConfigurationError("api_token holds a space, a line end or a non-ASCII character")

    def __repr__(self) -> str:
        return f"base_url={self.base_url!r}, account_id={self.account_id!r}, api_token='[secret]'"

    @property
    def account_url(self) -> str:
        return f"{self.base_url}/accounts/{quote(self.account_id, safe='')}"

    @property
    def is_loopback(self) -> bool:
        host = httpx.URL(self.base_url).host
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def uses_tls(self) -> bool:
        return self.base_url.startswith("https://")


def resolve_config(
    *,
    base_url: str | None = None,
    account_id: str | None = None,
    api_token: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """Fill what the caller left out; `ConfigurationError` says what is missing and what to do.

    An empty environment variable counts as unset. The file's account and token are used with the
    file's own base URL only, so that they are never sent to another server.
    """
    base_url = _trimmed(base_url or environ.get(BASE_URL_VARIABLE))
    account_id = account_id or environ.get(ACCOUNT_ID_VARIABLE)
    api_token = api_token or environ.get(API_TOKEN_VARIABLE)
    if not (base_url and account_id and api_token):
        saved = load_credentials(credentials_path(environ))
        if saved and base_url in (None, _trimmed(saved.base_url)):
            base_url = _trimmed(saved.base_url)
            account_id = account_id or saved.account_id
            api_token = api_token or saved.api_token
    if base_url and account_id and api_token:
        return Config(base_url=base_url, account_id=account_id, api_token=api_token)
    missing = {
        BASE_URL_VARIABLE: base_url,
        ACCOUNT_ID_VARIABLE: account_id,
        API_TOKEN_VARIABLE: api_token,
    }
    raise ConfigurationError(_what_to_do([name for name, value in missing.items() if not value]))


def _what_to_do(missing: list[str]) -> str:
    arguments = ", ".join(name.removeprefix("TENANTRY_").lower() for name in missing)
    return (
        f"not configured: {arguments}. Start a runtime on this machine with `workerctl dev`, which "
        f"leaves its credentials for you; or set {', '.join(missing)}; or pass {arguments}"
    )


def _trimmed(base_url: str | None) -> str | None:
    return base_url.rstrip("/") if base_url else None


def _is_http_url(url: str) -> bool:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host)
