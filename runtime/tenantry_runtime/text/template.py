"""Chat templates: Jinja in a sandbox, with the environment that released templates are written for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tenantry_runtime.errors import CheckpointError, InvalidInput

from .controls import MARK


class ChatTemplate:
    """A compiled template. `file` is named in errors."""

    def __init__(self, source: str, *, file: str) -> None:
        self.file = file
        if MARK in source:
            raise CheckpointError(file, None, f"contains the reserved character {MARK!r}")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
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
