"""Reads a trace: when requests came, how long they were, which blocks of their prompts are equal.

One JSON object a line:

| field | what |
|---|---|
| `timestamp` | milliseconds since the trace's start; never less than the line's before |
| `input_length`, `output_length` | tokens; an output of 0 is one token here: a prompt ends in a token |
| `hash_ids` | one for each `BLOCK_TOKENS` of the input, the last one of what is left; two prompts whose ids are equal up to a block are equal up to its end |

Other fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

BLOCK_TOKENS = 512
"""Of the traces that Mooncake published, and of all that follow their form."""


class TraceError(ValueError):
    """A line of a trace cannot be used."""

    def __init__(self, line: int, field: str | None, problem: str) -> None:
        self.line = line
        """Counted from 1."""
        self.field = field
        """None where the line is no JSON object at all."""
        self.problem = problem
        super().__init__(line, field, problem)

    def __str__(self) -> str:
        where = f"line {self.line}" if self.field is None else f"line {self.line}: {self.field}"
        return f"{where}: {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """One request of a trace, after scaling."""

    number: int
    """Counted from 0."""
    arrival_s: float
    """After the first request that the trace could have had."""
    num_prompt: int
    """Tokens."""
    num_output: int
    """Tokens, at least one."""
    blocks: tuple[int, ...]
    block_tokens: int
    """Of every block but the last, which has the rest."""

    def sized_blocks(self) -> Iterator[tuple[int, int]]:
        """Yield each block and how many of the prompt's tokens are in it."""
        num_left = self.num_prompt
        for block in self.blocks:
            yield block, min(num_left, self.block_tokens)
            num_left -= self.block_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """How much of a trace is replayed, and how fast."""

    scale: int = 1
    """Lengths are divided by it, rounded up; blocks shrink alike."""
    speed: float = 1.0
    """2 halves the time between requests."""
    limit: int | None = None
    """Only so many requests, from the start."""

    def __post_init__(self) -> None:
        if self.scale < 1 or BLOCK_TOKENS % self.scale:
            raise ValueError(
                f"scale is {self.scale}; it must divide a block's {BLOCK_TOKENS} tokens: "
                "1, 2, 4, ... 512"
            )
        if not self.speed > 0:
            raise ValueError(f"speed is {self.speed}; it must be more than 0")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit is {self.limit}; it must be 1 or more")


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


_DECODER = msgspec.json.Decoder(_Line)


def read_trace(lines: Iterable[bytes], options: TraceOptions) -> Iterator[TraceRequest]:
    """Yield the requests as their lines are read; raises `TraceError` at the first bad one.

    Empty lines are skipped.
    """
    return islice(_requests(lines, options), options.limit)


def _requests(lines: Iterable[bytes], options: TraceOptions) -> Iterator[TraceRequest]:
    number = 0
    latest_ms = 0.0
    for line_number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        line = _parsed(line_number, text)
        _check(line_number, line, latest_ms)
        latest_ms = line.timestamp
        yield TraceRequest(
            number=number,
            arrival_s=line.timestamp / 1000 / options.speed,
            num_prompt=_divided(line.input_length, options.scale),
            num_output=max(1, _divided(line.output_length, options.scale)),
            blocks=tuple(line.hash_ids),
            block_tokens=BLOCK_TOKENS // options.scale,
        )
        number += 1


def _parsed(line_number: int, text: bytes) -> _Line:
    try:
        return _DECODER.decode(text)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        field = path.rstrip("`") or None
        if field is None and "missing required field" in problem:
            field = problem.rpartition("field ")[2].strip("`")
            problem = "is missing"
        raise TraceError(line_number, field, problem) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(line_number, None, f"not JSON: {error}") from error


def _check(line_number: int, line: _Line, latest_ms: float) -> None:
    if line.timestamp < latest_ms:
        problem = f"{line.timestamp:g} ms, after {latest_ms:g}: requests must be in order of time"
        raise TraceError(line_number, "timestamp", problem)
    if line.input_length < 1:
        raise TraceError(line_number, "input_length", f"{line.input_length}; at least 1 is needed")
    if line.output_length < 0:
        raise TraceError(line_number, "output_length", f"{line.output_length} is negative")
    num_blocks = _divided(line.input_length, BLOCK_TOKENS)
    if len(line.hash_ids) != num_blocks:
        problem = (
            f"{len(line.hash_ids)} ids; {line.input_length} tokens are {num_blocks} blocks "
            f"of {BLOCK_TOKENS}"
        )
        raise TraceError(line_number, "hash_ids", problem)


def _divided(length: int, divisor: int) -> int:
    return -(-length // divisor)
