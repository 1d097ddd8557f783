"""Which names and bindings a worker may have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.workers.interface import FETCH
from tenantry_runtime.workers.spec import Binding, JsonBinding, TextBinding

MAX_BINDINGS = 128
MAX_VARIABLE_BYTES = 5 << 10
MAX_DEPTH = 64
"""Of lists and objects in a variable."""
LEAST_INTEGER, MOST_INTEGER = -(1 << 63), (1 << 64) - 1
MAX_KNOWN_CHARS = 512
"""Of what is looked for."""

_WORKER = re.compile(r"[a-z0-9_][a-z0-9_-]{0,62}", re.ASCII)
_BINDING = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)


def check_worker_name(name: str) -> None:
    """Raise `InvalidInput` for what may not be a worker's name."""
    if not _WORKER.fullmatch(name):
        raise InvalidInput(
            "name",
            f"{name[:64]!r} is no worker's name: 1 to 63 of the letters a to z, digits, - and _, "
            "no - first",
        )


def can_be_known(*names: str) -> bool:
    """Say whether there could be something of these names or ids: a database refuses some texts."""
    return all(name.isprintable() and len(name) <= MAX_KNOWN_CHARS for name in names)


def check_bindings(bindings: Sequence[Binding]) -> None:
    """Raise `InvalidInput` for names that none may have, come twice, or are too many."""
    if len(bindings) > MAX_BINDINGS:
        raise InvalidInput("bindings", f"are {len(bindings)}; {MAX_BINDINGS} are allowed")
    seen: set[str] = set()
    for binding in bindings:
        _check_name(binding.name)
        if binding.name in seen:
            raise InvalidInput("bindings", f"{binding.name} comes twice")
        seen.add(binding.name)
        _check_size(binding)


def _check_name(name: str) -> None:
    if not _BINDING.fullmatch(name):
        raise InvalidInput("bindings", f"{name[:64]!r} is no name for a binding")
    # `env.__class__` is Python's, and `FETCH` is what `fetch` calls
    if (name.startswith("__") and name.endswith("__")) or name == FETCH:
        raise InvalidInput("bindings", f"{name} is a name that Python or the runtime uses itself")


def _check_size(binding: Binding) -> None:
    match binding:
        case TextBinding(text=text):
            num_bytes = len(text.encode())
        case JsonBinding(json=value):
            num_bytes = len(msgspec.json.encode(value))
            _check_json(binding.name, value)
        case _:
            return
    if num_bytes > MAX_VARIABLE_BYTES:
        raise InvalidInput(
            "bindings",
            f"{binding.name} has {num_bytes} bytes; a variable has at most {MAX_VARIABLE_BYTES}. "
            "Keep longer values in a file of the worker or in a KV namespace",
        )


# Any: whatever JSON has
def _check_json(name: str, value: Any, depth: int = 0) -> None:
    """Raise `InvalidInput` for what MessagePack, by which workers get it, cannot carry."""
    if depth > MAX_DEPTH:
        raise InvalidInput("bindings", f"{name} is nested more than {MAX_DEPTH} deep")
    match value:
        case dict() | list():
            for each in value.values() if isinstance(value, dict) else value:
                _check_json(name, each, depth + 1)
        case int() if not LEAST_INTEGER <= value <= MOST_INTEGER:
            raise InvalidInput(
                "bindings", f"{name} has an integer of more than 64 bits. Write it as a string"
            )
