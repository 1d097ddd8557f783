"""What keeps the isolate from reading, told to a runtime that asks by a signal.

A handler of Python's runs between two steps of the worker's own code, or in a call that the signal
interrupts: a loop and a sleep are found, one long call of C is not. It sends nothing in the midst of
what the channel does, and changes nothing that the code below it has in its hands.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeAlias

from . import channel
from .bundle import ROOT, relative

ASKED = signal.SIGURG
"""Means nothing to a process that does not listen for it."""

Tell: TypeAlias = Callable[[str, int, bool], None]
"""Told the innermost file and line of the worker's, and whether the channel is in the midst of something."""


@contextmanager
def answering(tell: Tell) -> Iterator[None]:
    """Tell what this thread does whenever the runtime asks; only the main thread can be asked."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(_number: int, frame: FrameType | None) -> None:
        is_sending = False
        while frame is not None:
            filename = frame.f_code.co_filename
            if filename.startswith(ROOT):
                tell(relative(filename), frame.f_lineno, is_sending)
                return
            is_sending = is_sending or filename == channel.__file__
            frame = frame.f_back

    before = signal.signal(ASKED, asked)
    try:
        yield
    finally:
        signal.signal(ASKED, before)
