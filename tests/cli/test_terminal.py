"""What an answer looks like on a terminal, and in a file."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from tenantry import CompletionTokensDetails, PromptTokensDetails, Usage
from tenantry_cli.terminal import AnswerPrinter

USAGE = Usage(
    prompt_tokens=12,
    completion_tokens=41,
    total_tokens=53,
    prompt_tokens_details=PromptTokensDetails(cached_tokens=8),
    completion_tokens_details=CompletionTokensDetails(reasoning_tokens=7),
)

DIM, RESET = "\x1b[2m", "\x1b[0m"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def a_printer(out: io.StringIO, err: io.StringIO, *times_s: float) -> AnswerPrinter:
    times: Iterator[float] = iter(times_s or [0.0] * 9)
    return AnswerPrinter(out=out, err=err, clock=lambda: next(times))


def test_on_a_terminal_thinking_is_dimmed_and_on_lines_of_its_own() -> None:
    out, err = Terminal(), Terminal()
    with a_printer(out, err) as printer:
        printer.show(reasoning="17 + ", text="")
        printer.show(reasoning="25", text="")
        printer.show(reasoning="", text="42")
    assert err.getvalue() == f"{DIM}17 + {RESET}{DIM}25{RESET}\n"
    assert out.getvalue() == "42\n"


def test_thinking_alone_ends_its_line_too() -> None:
    err = Terminal()
    with a_printer(Terminal(), err) as printer:
        printer.show(reasoning="17", text="")
    assert err.getvalue() == f"{DIM}17{RESET}\n"


def test_a_file_gets_the_answer_alone_while_the_terminal_shows_the_thinking() -> None:
    out, err = io.StringIO(), Terminal()
    with a_printer(out, err) as printer:
        printer.show(reasoning="17 + 25", text="42")
    assert out.getvalue() == "42\n"
    assert "17 + 25" in err.getvalue()


def test_where_stderr_is_no_terminal_thinking_is_hidden_and_nothing_dimmed() -> None:
    err = io.StringIO()
    with a_printer(Terminal(), err) as printer:
        printer.show(reasoning="17 + 25", text="42")
        printer.finish(USAGE, "stop")
    assert "17 + 25" not in err.getvalue()
    assert "\x1b" not in err.getvalue()


@pytest.mark.parametrize(("text", "printed"), [("42", "42\n"), ("42\n", "42\n"), ("", "")])
def test_the_last_line_ends_once(text: str, printed: str) -> None:
    out = io.StringIO()
    with a_printer(out, io.StringIO()) as printer:
        printer.show(reasoning="", text=text)
        printer.finish(USAGE, "stop")
    assert out.getvalue() == printed


def test_usage_says_tokens_time_and_rate() -> None:
    err = io.StringIO()
    # begun at 1 s, first piece at 1.5 s, whole at 3.5 s: 40 tokens after the first in 2 s
    with a_printer(io.StringIO(), err, 1.0, 1.5, 3.5) as printer:
        printer.show(reasoning="", text="4")
        printer.show(reasoning="", text="2")
        printer.finish(USAGE, "stop")
    assert err.getvalue() == (
        "12 prompt tokens (8 cached), 41 completion tokens (7 reasoning), 2.50 s, 20 tokens/s\n"
    )


def test_an_answer_in_one_piece_has_no_rate() -> None:
    err = io.StringIO()
    with a_printer(io.StringIO(), err, 1.0, 3.0, 3.0) as printer:
        printer.show(reasoning="", text="42")
        printer.finish(USAGE, "stop")
    assert err.getvalue().endswith(", 2.00 s\n")


def test_an_answer_that_was_cut_off_says_so() -> None:
    err = io.StringIO()
    with a_printer(io.StringIO(), err) as printer:
        printer.finish(None, "length")
    assert err.getvalue() == "The answer was cut off: it reached the limit of tokens.\n"


def test_a_model_cannot_control_the_terminal_but_a_file_gets_its_words() -> None:
    text = "a\x1b]0;title\x07b\tc\n\x9b2J"
    terminal, file = Terminal(), io.StringIO()
    for out in (terminal, file):
        with a_printer(out, io.StringIO()) as printer:
            printer.show(reasoning="", text=text)
    assert terminal.getvalue() == "a\ufffd]0;title\ufffdb\tc\n\ufffd2J\n"
    assert file.getvalue() == text + "\n"


def test_thinking_cannot_control_the_terminal_either() -> None:
    err = Terminal()
    with a_printer(Terminal(), err) as printer:
        printer.show(reasoning="a\x1b[2Jb", text="")
    assert err.getvalue() == f"{DIM}a\ufffd[2Jb{RESET}\n"
