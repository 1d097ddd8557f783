"""The models that a deployment offers."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tenantry_runtime.catalog import Catalog, CatalogEntry, load_catalog
from tenantry_runtime.errors import ConfigurationError, UnknownModel

from .explain import suggestion
from .file import CatalogPart
from .misfit import Misfit


def offered(part: CatalogPart, folder: Path) -> Catalog:
    """Return the catalog, with absolute directories; raise `Misfit`."""
    if part.file is not None and part.models:
        raise Misfit("catalog", "give either file or models, not both")
    try:
        if part.models:
            catalog = Catalog([_located(entry, folder) for entry in part.models])
        else:
            catalog = load_catalog(None if part.file is None else folder / part.file)
    except ConfigurationError as error:
        raise Misfit(f"catalog.{'models' if part.models else 'file'}", str(error)) from error
    if part.offer is None:
        return catalog
    ids = {
        find_entry(f"catalog.offer[{place}]", name, catalog).id
        for place, name in enumerate(part.offer)
    }
    return Catalog([entry for entry in catalog.entries if entry.id in ids])


def find_entry(key: str, name: str, catalog: Catalog) -> CatalogEntry:
    """Return the model that a key names by id or alias; raise `Misfit`."""
    try:
        return catalog.resolve(name)
    except UnknownModel as error:
        known = [name for entry in catalog.entries for name in entry.names]
        problem = f"the catalog offers no model {name!r}; {suggestion(name, known)}"
        raise Misfit(key, problem) from error


def _located(entry: CatalogEntry, folder: Path) -> CatalogEntry:
    directory = os.path.normpath(folder / entry.directory)
    return msgspec.structs.replace(entry, directory=directory)
