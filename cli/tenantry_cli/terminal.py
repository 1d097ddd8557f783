"""An answer on a terminal, or in a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

import click

from tenantry import Usage

from .printable import printable


class AnswerPrinter:
    """Prints an answer as it comes: the content to `out`, all else to `err`.

    The model's thinking is shown, dimmed, only where `err` is a terminal. In a file or a pipe the
    content is exactly the model's; on a terminal control characters are replaced.
    """

    def __init__(
        self, *, out: TextIO, err: TextIO, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._err = err
        self._clock = clock
        self._started_s = clock()
        self._first_piece_s: float | None = None
        self._is_reasoning_open = False
        self._last_character = "\n"

    def show(self, *, reasoning: str, text: str) -> None:
        """Print more of the thinking, of the content, or of both."""
        if (reasoning or text) and self._first_piece_s is None:
            self._first_piece_s = self._clock()
        if reasoning and self._err.isatty():
            # noted before printing: Ctrl-C may come in between, and the line must end all the same
            self._is_reasoning_open = not reasoning.endswith("\n")
            click.secho(printable(reasoning), file=self._err, dim=True, nl=False)
        if text:
            self._end_reasoning()
            self._last_character = text[-1]
            click.echo(printable(text) if self._out.isatty() else text, file=self._out, nl=False)

    def finish(self, usage: Usage | None, finish_reason: str | None) -> None:
        """Say what the answer took."""
        self._end_lines()
        if usage is not None:
            click.secho(self._usage_line(usage), file=self._err, dim=True)
        if finish_reason == "length":
            click.echo("The answer was cut off: it reached the limit of tokens.", file=self._err)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the cursor at the start of a line, also where the answer broke off."""
        self._end_lines()

    def _end_lines(self) -> None:
        self._end_reasoning()
        if self._last_character != "\n":
            click.echo(file=self._out)
            self._last_character = "\n"

    def _end_reasoning(self) -> None:
        if self._is_reasoning_open:
            click.echo(file=self._err)
            self._is_reasoning_open = False

    def _usage_line(self, usage: Usage) -> str:
        now_s = self._clock()
        cached = usage.prompt_tokens_details.cached_tokens
        reasoning = usage.completion_tokens_details.reasoning_tokens
        parts = [
            f"{usage.prompt_tokens} prompt tokens ({cached} cached)",
            f"{usage.completion_tokens} completion tokens ({reasoning} reasoning)",
            f"{now_s - self._started_s:.2f} s",
        ]
        decoding_s = now_s - (self._first_piece_s or now_s)
        # the first token is the prompt's; an answer that came in one piece shows no rate
        if usage.completion_tokens > 1 and decoding_s > 0.001:
            parts.append(f"{(usage.completion_tokens - 1) / decoding_s:.0f} tokens/s")
        return ", ".join(parts)
