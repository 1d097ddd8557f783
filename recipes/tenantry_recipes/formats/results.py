"""What was judged so far: a file of JSON lines, so that a long run can be cut and go on.

| line | says |
|---|---|
| subject | which seed and weights all others of this model are of |
| verdict | whether one variant was right on one item |
| divergence | how far two variants were apart on one item's answer |

One run adds to a file at a time. The files of runs that had different models, tasks or streams, one
after the other, are the file of one run.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from .errors import FormatEvaluationError, ResultsInUse, ResultsMismatch


class Cell(NamedTuple):
    """Where items are judged."""

    model: str
    task: str
    length: int
    streams: int


class Subject(msgspec.Struct, frozen=True, kw_only=True, tag="subject"):
    """What a model's results are of."""

    model: str
    seed: int
    revision: str
    questions: int
    """Items of one context."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, tag="verdict"):
    """One item under one variant."""

    cell: Cell
    variant: str
    number: int
    is_right: bool


class Apart(msgspec.Struct, frozen=True, kw_only=True, tag="divergence"):
    """One item under the released formats and a variant (`divergence.py`)."""

    cell: Cell
    variant: str
    number: int
    num_tokens: int
    total_nats: float
    most_nats: float
    num_same: int


Line: TypeAlias = Subject | Verdict | Apart

_DECODER = msgspec.json.Decoder(Line)
_ENCODER = msgspec.json.Encoder()


class Results:
    """The lines of a file, and those that come."""

    def __init__(self, path: Path) -> None:
        """Read what is there; a last line that was cut off is left out, and overwritten."""
        self.path = path
        self._subjects: dict[str, Subject] = {}
        self._verdicts: dict[tuple[Cell, str], dict[int, bool]] = {}
        self._apart: dict[tuple[Cell, str], dict[int, Apart]] = {}
        if path.exists():
            self._take(self._read())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the file for this run alone; raise ResultsInUse if another has it."""
        try:
            file = self.path.open("ab")
        except OSError as error:
            raise FormatEvaluationError(f"{self.path}: {error.strerror}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ResultsInUse(self.path) from None
            yield

    def require_subject(self, subject: Subject) -> None:
        """Begin a model's results, or raise ResultsMismatch if those that are there are of another."""
        known = self._subjects.get(subject.model)
        if known is None:
            self._append([subject])
        elif known.seed != subject.seed:
            raise ResultsMismatch(
                self.path, f"has results of --seed {known.seed}, not {subject.seed}"
            )
        elif known.questions != subject.questions:
            raise ResultsMismatch(
                self.path, f"has contexts of {known.questions} items, not {subject.questions}"
            )
        elif known.revision != subject.revision:
            raise ResultsMismatch(self.path, f"has results of other weights of {subject.model}")

    def add(self, lines: Iterable[Verdict | Apart]) -> None:
        """Keep results; they are in the file when this returns."""
        self._append(list(lines))

    def verdicts(self, cell: Cell, variant: str) -> dict[int, bool]:
        """Return whether each judged item was right, by number."""
        return self._verdicts.get((cell, variant), {})

    def apart(self, cell: Cell, variant: str) -> dict[int, Apart]:
        """Return the divergences of items, by number."""
        return self._apart.get((cell, variant), {})

    def _append(self, lines: list[Line]) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(b"".join(_ENCODER.encode(line) + b"\n" for line in lines))
        except OSError as error:
            raise FormatEvaluationError(f"{self.path}: {error.strerror}") from error
        self._take(lines)

    def _take(self, lines: Iterable[Line]) -> None:
        for line in lines:
            match line:
                case Subject():
                    self._subjects[line.model] = line
                case Verdict():
                    known = self._verdicts.setdefault((line.cell, line.variant), {})
                    known[line.number] = line.is_right
                case Apart():
                    self._apart.setdefault((line.cell, line.variant), {})[line.number] = line

    def _read(self) -> list[Line]:
        try:
            content = self.path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            if whole != content:
                with self.path.open("r+b") as file:
                    file.truncate(len(whole))
        except OSError as error:
            raise FormatEvaluationError(f"{self.path}: {error.strerror}") from error
        lines: list[Line] = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                lines.append(_DECODER.decode(line))
            except msgspec.DecodeError as error:
                raise ResultsMismatch(
                    self.path, f"has a line {number} that is no result ({error})"
                ) from error
        return lines
