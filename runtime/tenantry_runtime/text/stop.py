"""Stop strings: the answer ends before the first of them, and no part of one is ever shown."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry_runtime.core import ContentDelta, OutputEvent


class StopStrings:
    """A filter over the events of one answer. It looks at content alone, one run of it at a time.

    Content that could be the beginning of a stop string is held back until it is decided. Where
    several stop strings match, the one that is complete first counts, whatever the pieces.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        if "" in stop:
            raise ValueError("an empty stop string matches everywhere")
        self._stop = tuple(stop)
        self._held = ""
        self._is_hit = False

    def feed(self, events: Sequence[OutputEvent]) -> tuple[list[OutputEvent], bool]:
        """Return what may be shown, and whether a stop string has ended the answer."""
        if not self._stop:
            return list(events), False
        shown: list[OutputEvent] = []
        for event in events:
            if self._is_hit:
                break
            if isinstance(event, ContentDelta):
                shown += _content(self._take(event.text))
            else:
                # other output ends the run of content, and with it what could become a stop string
                shown += [*self.flush(), event]
        return shown, self._is_hit

    def flush(self) -> list[OutputEvent]:
        """Return the content still held; to be called when the answer ends without a hit."""
        held, self._held = self._held, ""
        return _content(held)

    def _take(self, text: str) -> str:
        text = self._held + text
        self._held = ""
        found = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            self._is_hit = True
            _, start = min(found)
            return text[:start]
        num_held = max(_overlap(text, stop) for stop in self._stop)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that is a beginning of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


def _content(text: str) -> list[OutputEvent]:
    return [ContentDelta(text)] if text else []
