"""The account `dev`, and the files by which the SDK and curl use it."""

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
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.tenancy import ensure_access, open_store

ACCOUNT = TenantId("dev")


async def grant_access(
    *, state_dir: Path, base_url: str, credentials_file: Path, curl_config: Path
) -> Credentials:
    """Leave a valid token where clients look for it.

    The token of an earlier start stays valid. Raise `ConfigurationError` when a file cannot be
    written.
    """
    async with open_store(state_dir) as store:
        token = await ensure_access(
            store, ACCOUNT, known=_known_token(credentials_file), token_name="workerctl dev"
        )
    credentials = Credentials(base_url=base_url, account_id=ACCOUNT, api_token=token)
    try:
        save_credentials(credentials, credentials_file)
        _write_private(curl_config, f'header = "Authorization: Bearer {token}"\n')
    except OSError as error:
        problem = f"cannot write {error.filename or credentials_file}: {error.strerror}"
        raise ConfigurationError(problem) from error
    return credentials


def _known_token(path: Path) -> str | None:
    try:
        credentials = load_credentials(path)
    except CredentialsError:
        # it is about to be replaced
        return None
    if credentials is None or credentials.account_id != ACCOUNT:
        return None
    return credentials.api_token


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
