"""What an answer has to fit, as one grammar from its first token to its last.

| asked for | thinking | then |
|---|---|---|
| tools, choice auto | any tokens | any tokens, and calls between them |
| tools, choice required or a name | any tokens | calls |
| JSON | any tokens | one value |
| JSON, and tools with choice auto | any tokens | one value, or calls |

Any tokens are those that neither end the turn nor belong to calls. So a call fits its tool's schema
wherever it comes, in the middle of thinking too, and a turn ends where the grammar lets it end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tenantry_runtime.core import JsonFormat, ResponseFormat, TextFormat, Tool, ToolChoice

from . import glm_grammar, kimi_grammar
from .family import FamilyName
from .json_grammar import ANY_OBJECT, json_expression
from .lark import LarkText, any_token_but, one_of, token
from .prompt import OutputState

THINK_CLOSE = "</think>"
CONTENT_FIELD = "response_format.json_schema"

_CALL_CONTROLS: Mapping[FamilyName, tuple[str, ...]] = {
    "kimi": (
        kimi_grammar.SECTION_OPEN,
        kimi_grammar.SECTION_CLOSE,
        kimi_grammar.CALL_OPEN,
        kimi_grammar.ARGUMENTS_OPEN,
        kimi_grammar.CALL_CLOSE,
    ),
    "glm": (
        glm_grammar.CALL_OPEN,
        glm_grammar.CALL_CLOSE,
        glm_grammar.KEY_OPEN,
        glm_grammar.KEY_CLOSE,
        glm_grammar.VALUE_OPEN,
        glm_grammar.VALUE_CLOSE,
    ),
}

# white space before what has to come: some models write a line break after their thinking
_SPACE = r"/[ \n]{1,2}/"

IsLenient: TypeAlias = Callable[[int | None], bool]
"""Whether the schema of a tool (its index) or of the content (None) is taken as far as it is understood."""


class Vocabulary(Protocol):
    """What a grammar must know of a text model."""

    @property
    def family(self) -> FamilyName: ...

    @property
    def control_ids(self) -> Mapping[str, int]: ...

    @property
    def stop_token_ids(self) -> frozenset[int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a request says of the form of its answer."""

    initial: OutputState
    tools: Sequence[Tool] = ()
    choice: ToolChoice = dataclasses.field(default_factory=ToolChoice)
    has_many: bool = True
    """Whether there may be more than one call."""
    format: ResponseFormat = dataclasses.field(default_factory=TextFormat)

    @property
    def callable_tools(self) -> Sequence[tuple[int, Tool]]:
        """With their places among all tools."""
        if self.choice.mode == "none":
            return ()
        name = self.choice.name
        return [(i, tool) for i, tool in enumerate(self.tools) if name in (None, tool.name)]

    @property
    def field(self) -> str:
        """The request's field that has all schemas."""
        return "tools" if self.callable_tools else CONTENT_FIELD

    @property
    def is_free(self) -> bool:
        """Whether any answer will do."""
        return isinstance(self.format, TextFormat) and not self.callable_tools


def call_controls(wanted: Wanted, words: Vocabulary) -> Sequence[str]:
    """Return the control strings that the answer needs for its calls."""
    return _CALL_CONTROLS[words.family] if wanted.callable_tools else ()


def schemas_grammar(tools: Sequence[Tool]) -> str:
    """Return a grammar that compiles if the arguments of all tools have schemas that mean something."""
    lark = LarkText()
    rules = [
        lark.numbered("json", json_expression(tool.parameters, is_lenient=True)) for tool in tools
    ]
    return lark.text(one_of(rules))


def answer_grammar(wanted: Wanted, words: Vocabulary, *, is_lenient: IsLenient) -> str:
    """Return the grammar of whole answers, thinking included."""
    ids = words.control_ids
    lark = LarkText()
    controls = [ids[name] for name in _CALL_CONTROLS[words.family] if name in ids]
    barred = {*words.stop_token_ids, *controls}
    form = _form(lark, wanted, words, is_lenient=is_lenient)
    if form is None:
        free = lark.rule("free", any_token_but(barred))
        calls = lark.rule("calls", _calls(lark, wanted, words, is_lenient=is_lenient))
        return lark.text(f"{free}* ({calls} {free}*){'*' if wanted.has_many else '?'}")
    if wanted.initial is not OutputState.REASONING or THINK_CLOSE not in ids:
        return lark.text(form)
    close = ids[THINK_CLOSE]
    thought = lark.rule("thought", any_token_but({*barred, close}))
    return lark.text(f"{thought}* {token(close)} {form}")


def _form(
    lark: LarkText, wanted: Wanted, words: Vocabulary, *, is_lenient: IsLenient
) -> str | None:
    """Return the expression of what comes after thinking; None: anything, with calls in it."""
    forms = []
    if isinstance(wanted.format, JsonFormat) and wanted.choice.mode != "required":
        schema = wanted.format.schema
        known = ANY_OBJECT if schema is None else schema
        forms.append(lark.rule("json", json_expression(known, is_lenient=is_lenient(None))))
    elif wanted.choice.mode != "required":
        return None
    if wanted.callable_tools:
        forms.append(lark.rule("calls", _calls(lark, wanted, words, is_lenient=is_lenient)))
    space = lark.rule("SPACE", _SPACE)
    return f"{space}? {one_of(forms)}"


def _calls(lark: LarkText, wanted: Wanted, words: Vocabulary, *, is_lenient: IsLenient) -> str:
    indices = [index for index, _ in wanted.callable_tools]
    tools = [tool for _, tool in wanted.callable_tools]
    write = kimi_grammar.kimi_calls if words.family == "kimi" else glm_grammar.glm_calls
    return write(
        lark,
        tools,
        words.control_ids,
        has_many=wanted.has_many,
        is_lenient=lambda index: is_lenient(indices[index]),
    )
