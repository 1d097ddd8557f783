"""Uploading versions of a worker, and deploying them."""

from __future__ import annotations

from .deploy import Deployed, deploy
from .metadata import Wishes, metadata
from .namespaces import with_namespaces
from .upload import Uploaded, upload_version

__all__ = [
    "Deployed",
    "Uploaded",
    "Wishes",
    "deploy",
    "metadata",
    "upload_version",
    "with_namespaces",
]
