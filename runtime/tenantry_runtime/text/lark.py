"""Grammars of whole answers, put together rule by rule in llguidance's form of Lark."""

from __future__ import annotations

import json
from collections.abc import Iterable

HEADER = '%llguidance {"no_forcing": true}'
"""Without it, a text that must come now has to come in the tokenizer's own cut, and the library asks
the tokenizer for that within the step."""


class LarkText:
    """Rules under construction; names are made here, so that none comes twice."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}

    def rule(self, name: str, expression: str) -> str:
        """Add a rule, or a terminal if the name is in capitals; return its name."""
        assert self._rules.get(name, expression) == expression, f"two rules are called {name}"
        self._rules[name] = expression
        return name

    def numbered(self, prefix: str, expression: str) -> str:
        """Add a rule under the next free name with this prefix."""
        return self.rule(f"{prefix}_{len(self._rules)}", expression)

    def text(self, start: str) -> str:
        rules = {"start": start, **self._rules}
        return "\n".join([HEADER, *(f"{name}: {rule}" for name, rule in rules.items()), ""])


def literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def token(token_id: int) -> str:
    return f"<[{token_id}]>"


def any_token_but(token_ids: Iterable[int]) -> str:
    return f"<[^{','.join(map(str, sorted(token_ids)))}]>"


def one_of(expressions: Iterable[str]) -> str:
    return "(" + " | ".join(expressions) + ")"
