"""From what a request wants of its answer to the grammar that the model is held to.

A schema is taken at its word where it can be. Where the compiler does not know a word of it, content
in strict form is refused, and all else is held to what is known of it: arguments that break a rule
that no grammar can have are better than no calls.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Set
from hashlib import sha256
from threading import Lock

from tenantry_runtime.core import JsonFormat, ToolChoice
from tenantry_runtime.errors import InvalidInput

from .grammar import CONTENT_FIELD, Wanted, answer_grammar, call_controls, schemas_grammar
from .json_grammar import CircularReference
from .matching import GrammarError, Matching
from .model import TextModel
from .prompt import OutputState

MAX_VERDICTS = 32
"""Kept of one tenant."""
MAX_TENANTS = 1024
"""That verdicts are kept of."""


class Constraints:
    """Makes and checks the grammars of one model's answers."""

    def __init__(self, text: TextModel) -> None:
        self._text = text
        self._ids = text.control_ids
        self._matching: Matching | None = None
        # nobody can tell by its time what another tenant has asked for: each has verdicts of its own
        self._lock = Lock()
        self._verdicts: OrderedDict[str, OrderedDict[bytes, str | InvalidInput]] = OrderedDict()

    def grammar(self, wanted: Wanted, tenant: str) -> str:
        """Return the grammar; raise `InvalidInput` that names the field with a schema that is none.

        May be called from several threads at once. Takes up to a second.
        """
        try:
            digest = _digest(wanted)
        except RecursionError as error:
            raise InvalidInput(wanted.field, "is nested too deeply") from error
        with self._lock:
            found = self._verdicts.get(tenant, OrderedDict()).get(digest)
        if found is None:
            try:
                found = self._made(wanted)
            except InvalidInput as error:
                found = error
            with self._lock:
                self._keep(tenant, digest, found)
        if isinstance(found, InvalidInput):
            raise InvalidInput(found.field, found.problem)
        return found

    def _keep(self, tenant: str, digest: bytes, verdict: str | InvalidInput) -> None:
        mine = self._verdicts.setdefault(tenant, OrderedDict())
        mine[digest] = verdict
        self._verdicts.move_to_end(tenant)
        if len(mine) > MAX_VERDICTS:
            mine.popitem(last=False)
        if len(self._verdicts) > MAX_TENANTS:
            self._verdicts.popitem(last=False)

    def _made(self, wanted: Wanted) -> str:
        missing = [name for name in call_controls(wanted, self._text) if name not in self._ids]
        if missing:
            raise InvalidInput("tools", f"the model's vocabulary lacks {missing[0]!r}")
        try:
            return self._understood(wanted)
        except RecursionError as error:
            raise InvalidInput(wanted.field, "is nested too deeply") from error
        except CircularReference as error:
            raise InvalidInput(wanted.field, str(error)) from error

    def _understood(self, wanted: Wanted) -> str:
        tools = [tool for _, tool in wanted.callable_tools]
        grammar = self._written(wanted)
        # where arguments are raw text, not all of their schemas is in the grammar
        if self._problem(grammar) is None and not (tools and self._problem(schemas_grammar(tools))):
            return grammar
        grammar = self._written(wanted, self._lenient_parts(wanted))
        problem = self._problem(grammar)
        if problem is not None:
            raise InvalidInput(wanted.field, problem)
        return grammar

    def _lenient_parts(self, wanted: Wanted) -> set[int | None]:
        """Return which schemas have words that the compiler does not know: tools, or None for content."""
        lenient: set[int | None] = set()
        for part, field, alone in _parts(wanted):
            tools = alone.tools
            if tools and (problem := self._problem(schemas_grammar(tools))) is not None:
                raise InvalidInput(field, problem)
            problem = self._problem(self._written(alone))
            if problem is None:
                continue
            is_strict = isinstance(alone.format, JsonFormat) and alone.format.strict
            if is_strict or self._problem(self._written(alone, {None, 0})) is not None:
                raise InvalidInput(field, problem)
            lenient.add(part)
        return lenient

    def _written(self, wanted: Wanted, lenient: Set[int | None] = frozenset()) -> str:
        return answer_grammar(wanted, self._text, is_lenient=lenient.__contains__)

    def _problem(self, grammar: str) -> str | None:
        if self._matching is None:
            text = self._text
            controls = text.tokenizer.controls.names
            self._matching = Matching.of_bytes(text.vocab_size, controls, text.stop_token_ids)
        try:
            self._matching.compiled(grammar)
        except GrammarError as error:
            return str(error)
        return None


def _parts(wanted: Wanted) -> Iterator[tuple[int | None, str, Wanted]]:
    """Yield each schema's place, its field in the request, and a request for it alone."""
    if isinstance(wanted.format, JsonFormat):
        yield None, CONTENT_FIELD, Wanted(initial=OutputState.CONTENT, format=wanted.format)
    for index, tool in wanted.callable_tools:
        choice = ToolChoice(mode="required")
        alone = Wanted(initial=OutputState.CONTENT, tools=(tool,), choice=choice)
        yield index, f"tools[{index}].function.parameters", alone


def _digest(wanted: Wanted) -> bytes:
    written = [
        wanted.initial,
        [(tool.name, tool.parameters) for tool in wanted.tools],
        (wanted.choice.mode, wanted.choice.name),
        wanted.has_many,
        None,
    ]
    if isinstance(wanted.format, JsonFormat):
        written[-1] = (wanted.format.schema, wanted.format.strict)
    return sha256(json.dumps(written).encode()).digest()
