"""Reading a catalog: a JSON object with a list `models` of entries."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tenantry_runtime.errors import ConfigurationError

from .catalog import Catalog
from .entry import CatalogEntry

BUILTIN = Path(__file__).parent / "builtin.json"
"""The nano checkpoints that come with this package."""


class CatalogFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    models: tuple[CatalogEntry, ...]


def load_catalog(path: Path | None = None) -> Catalog:
    """Read a catalog, or the built-in one; directories come out absolute.

    Raises `ConfigurationError`, which names the file and the field.
    """
    path = path or BUILTIN
    try:
        file = msgspec.json.decode(path.read_bytes(), type=CatalogFile)
    except OSError as error:
        raise ConfigurationError(f"cannot read the catalog {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"the catalog {path}: {error}") from error
    return Catalog([_located(entry, path.parent) for entry in file.models])


def _located(entry: CatalogEntry, folder: Path) -> CatalogEntry:
    directory = (folder / entry.directory).resolve()
    return msgspec.structs.replace(entry, directory=str(directory))
