"""Headers as pairs, which keep their order and may come more than once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias, TypeVar, cast, overload

from ._values import is_mapping

DefaultT = TypeVar("DefaultT")

_FORBIDDEN = frozenset("\r\n\0")


class Headers:
    """The headers of a request or a response; names are compared without case, and kept in lower case.

    It reads like `http.client.HTTPMessage` and like the web's `Headers`. A name that came more than
    once is one value, joined by a comma, except for `set-cookie`, whose values stay apart.
    """

    __slots__ = ("_pairs",)

    def __init__(self, init: HeadersInit | None = None) -> None:
        self._pairs: list[tuple[str, str]] = []
        if init is None:
            return
        if isinstance(init, Headers):
            self._pairs = list(init._pairs)
            return
        if isinstance(init, str):
            raise TypeError("headers are a dict or a list of pairs, not a str")
        pairs = init.items() if is_mapping(init) else init
        for name, value in cast("Iterable[tuple[str, object]]", pairs):
            self.append(name, value)

    def append(self, name: str, value: object) -> None:
        """Add a header next to those of its name."""
        self._pairs.append((_checked_name(name), _checked_value(value)))

    def set(self, name: str, value: object) -> None:
        """Put a header in the place of all of its name."""
        name, value = _checked_name(name), _checked_value(value)
        places = [place for place, pair in enumerate(self._pairs) if pair[0] == name]
        if not places:
            self._pairs.append((name, value))
            return
        self._pairs[places[0]] = (name, value)
        for place in reversed(places[1:]):
            del self._pairs[place]

    def delete(self, name: str) -> None:
        """Remove all of a name; nothing happens if there are none."""
        name = name.lower()
        self._pairs = [pair for pair in self._pairs if pair[0] != name]

    def has(self, name: str) -> bool:
        """Whether there is one of a name."""
        return name in self

    @overload
    def get(self, name: str) -> str | None: ...
    @overload
    def get(self, name: str, default: DefaultT) -> str | DefaultT: ...
    def get(self, name: str, default: object = None) -> object:
        """Return the value of a name, or `default`."""
        values = self._values(name)
        return ", ".join(values) if values else default

    @overload
    def get_all(self, name: str) -> list[str] | None: ...
    @overload
    def get_all(self, name: str, default: DefaultT) -> list[str] | DefaultT: ...
    def get_all(self, name: str, default: object = None) -> object:
        """Return the values of a name: several of `set-cookie`, one of any other."""
        values = self._values(name)
        if not values:
            return default
        return values if name.lower() == "set-cookie" else [", ".join(values)]

    def get_set_cookie(self) -> list[str]:
        """Return the values of `set-cookie`."""
        return self._values("set-cookie")

    getSetCookie = get_set_cookie

    def items(self) -> list[tuple[str, str]]:
        """Return names and values, a name that came more than once as one, except `set-cookie`."""
        joined: dict[str, str] = {}
        cookies: list[tuple[str, str]] = []
        for name, value in self._pairs:
            if name == "set-cookie":
                cookies.append((name, value))
            else:
                joined[name] = f"{joined[name]}, {value}" if name in joined else value
        return [*joined.items(), *cookies]

    entries = items

    def raw_items(self) -> list[tuple[str, str]]:
        """Return every pair as it was given, in order."""
        return list(self._pairs)

    def keys(self) -> list[str]:
        """Return the names, as often as `items` has them."""
        return [name for name, _ in self.items()]

    def values(self) -> list[str]:
        """Return the values, as `items` has them."""
        return [value for _, value in self.items()]

    def __getitem__(self, name: str) -> str | None:
        return self.get(name)

    def __setitem__(self, name: str, value: object) -> None:
        self.set(name, value)

    def __delitem__(self, name: str) -> None:
        self.delete(name)

    def __contains__(self, name: object) -> bool:
        lowered = name.lower() if isinstance(name, str) else name
        return any(pair[0] == lowered for pair in self._pairs)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.items())

    def __repr__(self) -> str:
        return f"Headers({self._pairs!r})"

    def _values(self, name: str) -> list[str]:
        name = name.lower()
        return [value for each, value in self._pairs if each == name]

    @classmethod
    def of_pairs(cls, pairs: list[tuple[str, str]]) -> Headers:
        """Take pairs that are known to be good, and owned by nobody else."""
        headers = cls.__new__(cls)
        headers._pairs = pairs
        return headers


HeadersInit: TypeAlias = Headers | Mapping[str, object] | Iterable[tuple[str, object]]


def _checked_name(name: str) -> str:
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the name of a header is a str, not {type(name).__name__}")
    if not name or not name.isascii() or not name.isprintable() or " " in name or ":" in name:
        raise ValueError(f"{name!r} is no name of a header")
    return name.lower()


def _checked_value(value: object) -> str:
    if value is None or isinstance(value, bytes):
        raise TypeError(f"the value of a header is a str, not {type(value).__name__}")
    text = str(value).strip(" \t")
    if not _FORBIDDEN.isdisjoint(text):
        raise ValueError(f"the value {text[:100]!r} of a header has line ends")
    if not text.isascii():
        text.encode("latin-1")
    return text
