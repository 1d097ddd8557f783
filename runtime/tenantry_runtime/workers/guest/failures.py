"""Exceptions as a tenant reads them: from the first line that is the tenant's own."""

from __future__ import annotations

import traceback
from types import TracebackType

from .bundle import ROOT, relative

MAX_NAME = 1024
MAX_TEXT = 64 << 10


def name_of(error: BaseException) -> str:
    """Return the name of an exception's class, as an error's name."""
    name = getattr(error, "name", None)
    own = type(error).__name__
    return name[:MAX_NAME] if own == "BindingError" and isinstance(name, str) else own[:MAX_NAME]


def message_of(error: BaseException) -> str:
    """Return what an exception says, whatever its `__str__` does."""
    try:
        return clean(str(error), MAX_TEXT)
    except Exception:
        return "<its __str__ raised>"


def trace_of(error: BaseException) -> str:
    """Return the trace as Python prints it, with paths relative to the bundle."""
    try:
        printed = "".join(
            traceback.format_exception(type(error), error, _own_part(error.__traceback__))
        )
    except Exception:
        return ""
    printed = printed.replace(f'File "{ROOT}/', 'File "')
    if len(printed) > MAX_TEXT:
        half = MAX_TEXT // 2 - 32
        printed = f"{printed[:half]}\n[... cut ...]\n{printed[-half:]}"
    return clean(printed, MAX_TEXT)


def place_of(error: BaseException) -> tuple[str, int]:
    """Return the innermost file and line of the bundle's that an exception came by; ("", 0): none."""
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith(ROOT):
        return relative(error.filename), error.lineno or 0
    place = ("", 0)
    at = error.__traceback__
    while at is not None:
        filename = at.tb_frame.f_code.co_filename
        if filename.startswith(ROOT):
            place = relative(filename), at.tb_lineno
        at = at.tb_next
    return place


def clean(text: str, max_length: int) -> str:
    """Return text that a frame can have: so much of it, and with no lone surrogates."""
    return text[:max_length].encode("utf-8", "replace").decode()


def _own_part(trace: TracebackType | None) -> TracebackType | None:
    at = trace
    while at is not None:
        if at.tb_frame.f_code.co_filename.startswith(ROOT):
            return at
        at = at.tb_next
    # none of it is the tenant's: what the error says is enough
    return None
