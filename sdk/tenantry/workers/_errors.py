"""What a call of a binding raises in a worker."""

from __future__ import annotations


class BindingError(Exception):
    """A binding refused a call, or failed at it; `str()` is the server's text.

    Where the server has a code, the text is `<code>: <description>`.
    """

    def __init__(self, name: str, message: str, code: int | None = None) -> None:
        self.name = name
        self.message = message
        self.code = code
        super().__init__(name, message, code)

    name: str
    """The server's name of the error: `InvalidInput`, `AiError`."""
    message: str
    code: int | None
    """The API's own code, such as 5007 (no such model) or 3040 (out of capacity)."""

    def __str__(self) -> str:
        return self.message


class AiError(BindingError):
    """A model could not be run: a bad input, a limit, no capacity."""


_PYTHON: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (
        ConnectionError,
        IndexError,
        KeyError,
        LookupError,
        NotImplementedError,
        OSError,
        PermissionError,
        RuntimeError,
        TimeoutError,
        TypeError,
        ValueError,
    )
}


def call_error(name: str, message: str, code: int | None = None) -> Exception:
    """Make the exception of a refused call: Python's own if `name` is one of those, with no code."""
    if code is None and name in _PYTHON:
        return _PYTHON[name](message)
    return BindingError(name, message, code)
