"""The store of workers: scripts, versions, deployments, secrets, routes and schedules."""

from .blobs import BlobStore
from .records import (
    Deployed,
    Deployment,
    NewVersion,
    Notes,
    Route,
    Schedule,
    SecretListing,
    Settings,
    Share,
    StoredVersion,
    Worker,
    WorkerSchedule,
)
from .store import WorkerStore

__all__ = [
    "BlobStore",
    "Deployed",
    "Deployment",
    "NewVersion",
    "Notes",
    "Route",
    "Schedule",
    "SecretListing",
    "Settings",
    "Share",
    "StoredVersion",
    "Worker",
    "WorkerSchedule",
    "WorkerStore",
]
