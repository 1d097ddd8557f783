"""What runs inside an isolate: one event loop, one stream of frames to the runtime, one worker."""

from __future__ import annotations

from .process import preload, prepare

__all__ = ["preload", "prepare"]
