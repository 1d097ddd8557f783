"""A folder's worker beside `workerctl dev`: deployed to it at the start, and again at every change."""

from __future__ import annotations

from .worker import LiveWorker, live_worker

__all__ = ["LiveWorker", "live_worker"]
