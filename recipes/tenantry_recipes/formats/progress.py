"""How an evaluation goes, on standard error."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from tqdm import tqdm

_LOGGED_EVERY_S = 60.0
"""Where no terminal is, so that a log of a long run stays short."""


class EvaluationProgress:
    """A bar on a terminal; in a log, a line a minute."""

    def __init__(self) -> None:
        self._bar: tqdm[None] | None = None

    def begin(self, num_steps: int, num_done: int) -> None:
        is_terminal = sys.stderr.isatty()
        self._bar = tqdm(
            total=num_steps,
            initial=num_done,
            unit="step",
            # the time that is left by all steps so far: some take much longer than others
            smoothing=0,
            mininterval=0.1 if is_terminal else _LOGGED_EVERY_S,
            maxinterval=_LOGGED_EVERY_S,
        )

    def advance(self, num_steps: int, what: str) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(what, refresh=False)
            self._bar.update(num_steps)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
