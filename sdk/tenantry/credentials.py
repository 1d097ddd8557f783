"""The credentials file: what `workerctl dev` leaves for the SDK on the same machine.

`credentials.json` in the user's configuration directory, or in `TENANTRY_CONFIG_DIR`, readable by
its owner alone. A base URL, an account and a token that belong together.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
import platformdirs

from .errors import ConfigurationError

CONFIG_DIR_VARIABLE = "TENANTRY_CONFIG_DIR"
FILE_NAME = "credentials.json"


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Where a runtime listens, and as whom to call it."""

    base_url: str
    """Up to and including `/client/v4`."""
    account_id: str
    api_token: str

    def __repr__(self) -> str:
        return (
            f"Credentials(base_url={self.base_url!r}, account_id={self.account_id!r}, "
            "api_token='[secret]')"
        )


def credentials_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Locate the credentials file, whether it exists or not."""
    directory = environ.get(CONFIG_DIR_VARIABLE) or platformdirs.user_config_dir("tenantry")
    return Path(directory) / FILE_NAME


def load_credentials(path: Path) -> Credentials | None:
    """Read the file; None if there is none, `ConfigurationError` if it is unusable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Credentials)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(f"the credentials file {path} is unusable: {error}") from error


def save_credentials(credentials: Credentials, path: Path) -> None:
    """Replace the file at once; at no moment can another user read the token."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # mkstemp makes the file with mode 0600
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(credentials)) + b"\n")
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
