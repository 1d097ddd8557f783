"""What `workerctl login` keeps: `login.json` beside the credentials of `dev`, mode 0600.

The token is in it, or in the system's keyring (with the package `keyring`); then the file's is empty.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

import click

from tenantry.credentials import (
    Credentials,
    credentials_path,
    load_credentials,
    save_credentials,
)

FILE_NAME = "login.json"
SERVICE = "tenantry"


class Keyring(Protocol):
    """What is used of the package `keyring`."""

    def get_password(self, service_name: str, username: str) -> str | None: ...

    def set_password(self, service_name: str, username: str, password: str) -> None: ...

    def delete_password(self, service_name: str, username: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Saved:
    """Who signed in, and where."""

    base_url: str
    account_id: str
    api_token: str
    is_in_keyring: bool


def login_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Locate the file, whether it exists or not."""
    return credentials_path(environ).with_name(FILE_NAME)


def load_login(environ: Mapping[str, str] = os.environ) -> Saved | None:
    """Read who signed in; None: nobody."""
    kept = load_credentials(login_path(environ))
    if kept is None:
        return None
    token = kept.api_token or _from_keyring(kept)
    return Saved(
        base_url=kept.base_url,
        account_id=kept.account_id,
        api_token=token,
        is_in_keyring=not kept.api_token,
    )


def save_login(saved: Saved, environ: Mapping[str, str] = os.environ) -> None:
    """Keep who signed in, instead of who did before."""
    kept = Credentials(
        base_url=saved.base_url,
        account_id=saved.account_id,
        api_token="" if saved.is_in_keyring else saved.api_token,
    )
    forget_login(environ)
    if saved.is_in_keyring:
        try:
            _keyring().set_password(SERVICE, _user(kept), saved.api_token)
        except _keyring_errors() as error:
            raise click.ClickException(
                f"the keyring did not take the token ({error}); --no-keyring keeps it in a file"
            ) from error
    save_credentials(kept, login_path(environ))


def forget_login(environ: Mapping[str, str] = os.environ) -> bool:
    """Forget who signed in; tell whether somebody had."""
    path = login_path(environ)
    kept = load_credentials(path)
    if kept is None:
        return False
    if not kept.api_token:
        try:
            _keyring().delete_password(SERVICE, _user(kept))
        except _keyring_errors() as error:
            raise click.ClickException(f"the keyring did not forget the token: {error}") from error
    path.unlink(missing_ok=True)
    return True


def _from_keyring(kept: Credentials) -> str:
    try:
        token = _keyring().get_password(SERVICE, _user(kept))
    except _keyring_errors() as error:
        raise click.ClickException(f"the keyring did not give the token: {error}") from error
    if token is None:
        raise click.ClickException(
            "the token is not in the keyring any more; run `workerctl login` again"
        )
    return token


def _user(kept: Credentials) -> str:
    return f"{kept.account_id}@{kept.base_url}"


def _keyring() -> Keyring:
    if find_spec("keyring") is None:
        raise click.ClickException(
            "the package keyring is not installed; run: pip install keyring, or say --no-keyring"
        )
    return cast("Keyring", import_module("keyring"))


def _keyring_errors() -> tuple[type[Exception], ...]:
    if find_spec("keyring") is None:
        return ()
    return (cast("type[Exception]", import_module("keyring.errors").KeyringError),)
