"""Reading what a worker calls a binding with: values of any kind, of which nothing is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenantry_runtime.workers.interface import ByteStream, CallRefused

MAX_SHOWN_CHARS = 100
"""Of a hostile value in a message."""


def wrong_type(message: str) -> CallRefused:
    """Return what a worker gets for an argument that is none: Python's own `TypeError`."""
    return CallRefused("TypeError", message)


def shown(value: object) -> str:
    """Print a value for a message, cut."""
    text = value if isinstance(value, str) else type(value).__name__
    return repr(text[:MAX_SHOWN_CHARS])


# Any, here and below: whatever MessagePack has
class Arguments:
    """The arguments of one call, by their places; one that is not there is None."""

    def __init__(self, call: str, args: Sequence[Any], *, at_most: int) -> None:
        """`call` is what messages name it."""
        if len(args) > at_most:
            raise wrong_type(f"{call}: takes {at_most} arguments, not {len(args)}")
        self.call = call
        self._args = args

    def value(self, at: int) -> Any:
        return self._args[at] if at < len(self._args) else None

    def text(self, at: int, name: str) -> str:
        value = self.value(at)
        if not isinstance(value, str):
            raise wrong_type(f"{self.call}: {name} must be a string, not {shown(value)}")
        return value

    def mapping(self, at: int, name: str) -> Mapping[str, Any]:
        """Return a dictionary whose keys are strings; an empty one where there is none."""
        return mapping_of(self.value(at), f"{self.call}: {name}")


def mapping_of(value: Any, name: str) -> Mapping[str, Any]:
    """Return a dictionary whose keys are strings; an empty one for None."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise wrong_type(f"{name} must be an object, not {shown(value)}")
    return value


def text_of(options: Mapping[str, Any], name: str, call: str) -> str | None:
    value = options.get(name)
    if value is not None and not isinstance(value, str):
        raise wrong_type(f"{call}: {name} must be a string, not {shown(value)}")
    return value


def number_of(options: Mapping[str, Any], name: str, call: str) -> int | None:
    """Return a whole number, also where it is written as a float or in digits."""
    value = options.get(name)
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 15:
        return int(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value != value or abs(value) >= 1 << 53 or value != int(value):
        raise wrong_type(f"{call}: {name} must be a whole number, not {shown(value)}")
    return int(value)


def flag_of(options: Mapping[str, Any], name: str, call: str) -> bool:
    value = options.get(name)
    if value is not None and not isinstance(value, bool):
        raise wrong_type(f"{call}: {name} must be true or false, not {shown(value)}")
    return bool(value)


async def read_all(body: ByteStream, max_bytes: int) -> bytes | None:
    """Return a body that a call was given, and close it; None for one that is longer."""
    read = bytearray()
    try:
        async for piece in body:
            read += piece
            if len(read) > max_bytes:
                return None
    finally:
        await body.aclose()
    return bytes(read)
