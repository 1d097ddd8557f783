"""Requests for workers: whose they are, there and back, and what is said where there is no answer."""

from __future__ import annotations

from .addresses import Address, WorkerUrls
from .directory import Directory, Source, open_directory
from .limits import RouteLimits
from .open_by_account import OpenByAccount
from .routes import Parts, WorkerRoutes

__all__ = [
    "Address",
    "Directory",
    "OpenByAccount",
    "Parts",
    "RouteLimits",
    "Source",
    "WorkerRoutes",
    "WorkerUrls",
    "open_directory",
]
