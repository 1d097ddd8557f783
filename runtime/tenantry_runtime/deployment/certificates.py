"""Which PEM files are whose in the directory of a private authority (`pool/certificates.py`)."""

from __future__ import annotations

import os
from pathlib import Path

from tenantry_runtime.pool.tls import TlsFiles


def named_in(directory: Path, name: str) -> TlsFiles:
    """Return the files of a node, or of the edge."""
    return TlsFiles(
        ca=str(directory / "ca.crt"),
        certificate=str(directory / f"{name}.crt"),
        key=str(directory / f"{name}.key"),
    )


def located(tls: TlsFiles, folder: Path) -> TlsFiles:
    """Return the files with relative paths started at a folder."""
    return TlsFiles(
        ca=os.path.normpath(folder / tls.ca),
        certificate=os.path.normpath(folder / tls.certificate),
        key=os.path.normpath(folder / tls.key),
    )
