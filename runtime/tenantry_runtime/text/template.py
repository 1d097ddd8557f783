"""Chat templates: Jinja in a sandbox, with the environment that released templates are written for.

That is the one of Hugging Face's `apply_chat_template`: its settings, its filters and functions, the
special tokens by their names, and `{% generation %}` blocks, which mark what a model writes for those
who train it and render as if they were not there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tenantry_runtime.errors import CheckpointError, InvalidInput

from .controls import MARK


class ChatTemplate:
    """A compiled template. `file` is named in errors."""

    def __init__(
        self,
        source: str,
        *,
        file: str,
        special_tokens: Mapping[str, str] | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """`special_tokens` are control strings by the names that templates have for them (`bos_token`)."""
        self.file = file
        if MARK in source:
            raise CheckpointError(file, None, f"contains the reserved character {MARK!r}")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationBlocks, LoopControlExtension],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda layout: now().strftime(layout)
        environment.globals.update(special_tokens or {})
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise CheckpointError(file, None, f"line {error.lineno}: {error.message}") from error

    def render(self, context: Mapping[str, object]) -> str:
        """Render one conversation.

        Raises `InvalidInput` where the template refuses the conversation or it is nested too deeply,
        `CheckpointError` where the template itself fails.
        """
        try:
            return self._template.render(context)
        except _Refusal as error:
            raise InvalidInput("messages", str(error)) from error
        except RecursionError as error:
            raise InvalidInput("messages", "nested too deeply for the chat template") from error
        except (jinja2.TemplateError, TypeError, ValueError, LookupError) as error:
            raise CheckpointError(self.file, None, f"cannot be rendered: {error}") from error


class _GenerationBlocks(Extension):
    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Put the block's content in its place."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Refusal(Exception):
    """The template called `raise_exception`."""


def _refuse(message: str) -> NoReturn:
    raise _Refusal(message)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML, which the models never saw
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
