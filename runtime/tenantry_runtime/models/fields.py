"""Typed reading of a checkpoint's `config.json`, with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenantry_runtime.errors import CheckpointError


class Fields:
    """The keys of one JSON object of a model configuration."""

    def __init__(self, values: Mapping[str, Any], *, file: str, parent: str = "") -> None:
        self._values = values
        self._file = file
        self._parent = parent

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._read(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.fail(key, f"is {value!r}, not a whole number >= 0")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._read(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.fail(key, f"is {value!r}, not a number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._read(key, default)
        if not isinstance(value, bool):
            raise self.fail(key, f"is {value!r}, not true or false")
        return value

    def sub(self, key: str) -> Fields:
        value = self._read(key, None)
        if not isinstance(value, Mapping):
            raise self.fail(key, f"is {value!r}, not an object")
        return Fields(value, file=self._file, parent=f"{self._parent}{key}.")

    def strings(self, key: str) -> tuple[str, ...]:
        value = self._read(key, None)
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise self.fail(key, f"is {value!r}, not a list of strings")
        return tuple(value)

    def require(self, key: str, expected: object) -> None:
        """Refuse a model whose `key` is there with a value that these layers do not implement."""
        value = self._values.get(key, expected)
        if value != expected:
            raise self.fail(key, f"is {value!r}; only {expected!r} is implemented")

    def fail(self, key: str, problem: str) -> CheckpointError:
        """Return the error that names the file and this key."""
        return CheckpointError(self._file, None, f"{self._parent}{key} {problem}")

    def _read(self, key: str, default: object) -> object:
        value = self._values.get(key)
        if value is None:
            value = default
        if value is None:
            raise self.fail(key, "is missing")
        return value
