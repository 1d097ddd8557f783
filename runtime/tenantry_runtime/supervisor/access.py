"""An account of this machine's user, and the files by which the SDK and curl use it."""

from __future__ import annotations

import os
from pathlib import Path

from tenantry.credentials import (
    Credentials,
    load_credentials,
    save_credentials,
)
from tenantry.errors import ConfigurationError as CredentialsError
from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import ConfigurationError, RequestError, StoreUnavailable
from tenantry_runtime.tenancy import ensure_access, open_store

from .account import ACCOUNT


async def grant_access(
    account: TenantId = ACCOUNT,
    *,
    state_dir: Path,
    store_url: str | None = None,
    base_url: str,
    credentials_file: Path,
    curl_config: Path,
    token_name: str = "workerctl dev",
) -> Credentials:
    """Leave a valid token of an account where clients look for it; make the account if need be.

    The token of an earlier start stays valid. Raise `ConfigurationError` when a file cannot be
    written, or the store refuses the account.
    """
    known = _known_token(credentials_file, account)
    try:
        async with open_store(state_dir, url=store_url) as store:
            token = await ensure_access(store, account, known=known, token_name=token_name)
    except (RequestError, StoreUnavailable) as error:
        # an id that is none, or an account that is suspended or deleted
        raise ConfigurationError(f"there is no access to account {account}: {error}") from error
    credentials = Credentials(base_url=base_url, account_id=account, api_token=token)
    try:
        save_credentials(credentials, credentials_file)
        _write_private(curl_config, f'header = "Authorization: Bearer {token}"\n')
    except OSError as error:
        problem = f"cannot write {error.filename or credentials_file}: {error.strerror}"
        raise ConfigurationError(problem) from error
    return credentials


def _known_token(path: Path, account: TenantId) -> str | None:
    try:
        credentials = load_credentials(path)
    except CredentialsError:
        # it is about to be replaced
        return None
    if credentials is None or credentials.account_id != account:
        return None
    return credentials.api_token


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
