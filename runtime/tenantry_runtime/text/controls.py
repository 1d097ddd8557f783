"""Control strings of a tokenizer, and how user text that contains them stays text.

A chat template yields one string, in which a control string that the template wrote cannot be told
from one that a user wrote. So user text is escaped before rendering and restored after the split:
every character with which some control string begins becomes a mark and a letter, both from the
private-use area, and so does the mark itself. No control string can then begin inside user text,
nor be put together from two fields of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar, cast

from .prompt import Control, Part, Text

MARK = "\uf8ff"
FIRST_LETTER = 0xF800

_Json = TypeVar("_Json")


class Controls:
    """The control strings of one tokenizer and their ids."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self.ids = dict(ids)
        self.names = {token_id: name for name, token_id in self.ids.items()}
        longest_first = sorted(self.ids, key=len, reverse=True)
        self._pattern = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        first_letters = sorted({name[0] for name in self.ids} - {MARK})
        # the mark goes first: the later replacements write marks of their own
        self._escapes = [
            (char, MARK + chr(FIRST_LETTER + index))
            for index, char in enumerate([MARK, *first_letters])
        ]

    def __contains__(self, token_id: int) -> bool:
        return token_id in self.names

    def escape(self, text: str) -> str:
        """Rewrite user text so that no control string begins in it."""
        for char, escaped in self._escapes:
            text = text.replace(char, escaped)
        return text

    def restore(self, text: str) -> str:
        """Undo `escape`."""
        for char, escaped in reversed(self._escapes):
            text = text.replace(escaped, char)
        return text

    def escape_deep(self, value: _Json) -> _Json:
        """`escape` every string in a JSON value, the keys of objects included."""
        return cast("_Json", self._escape_deep(value))

    def _escape_deep(self, value: object) -> object:
        match value:
            case str():
                return self.escape(value)
            case list() | tuple():
                return [self._escape_deep(element) for element in value]
            case dict():
                return {self._escape_deep(k): self._escape_deep(v) for k, v in value.items()}
            case _:
                return value

    def split(self, rendered: str) -> tuple[Part, ...]:
        """Cut a rendered conversation at its control strings and restore the text between them."""
        # a pattern with one group splits into text, control, text, control, ..., text
        pieces = self._pattern.split(rendered)
        parts: list[Part] = []
        for index, piece in enumerate(pieces):
            if index % 2:
                parts.append(Control(self.ids[piece]))
            elif piece:
                parts.append(Text(self.restore(piece)))
        return tuple(parts)
