"""One request's entry while it is open."""

from __future__ import annotations

import logging

from tenantry_runtime.core import Usage
from tenantry_runtime.tenancy.billing import Interruption

from .journal import Journal, Ticket
from .record import NOTHING, RequestFacts, UsageRecord, billed, make_record

MAX_REVISION_CHARS = 64
MAX_FORMATS_CHARS = 256
"""As `schema.usage` has them."""

_log = logging.getLogger(__name__)


class JournaledEntry:
    """An `Entry`. What was delivered is in the journal's slots, all else in memory until it closes."""

    __slots__ = (
        "_delivered",
        "_formats",
        "_generated",
        "_interruption",
        "_journal",
        "_outcome",
        "_revision",
        "_slots",
        "facts",
        "is_refused",
        "ticket",
    )

    def __init__(self, journal: Journal, ticket: Ticket, facts: RequestFacts) -> None:
        self.facts = facts
        self.ticket = ticket
        self.is_refused = False
        """Whether there is to be no record."""
        self._journal = journal
        self._slots = journal.slots
        self._delivered: Usage | None = None
        self._generated = NOTHING
        self._interruption: Interruption | None = Interruption.FAILED
        self._outcome = ""
        self._revision = ""
        self._formats = ""

    def delivered(self, usage: Usage) -> None:
        if self._delivered is None:
            self._slots.set_cached(self.ticket.slot, usage.cached_tokens)
        self._delivered = usage
        self._slots.deliver(self.ticket.slot, usage.completion_tokens, usage.reasoning_tokens)

    def generated(self, usage: Usage) -> None:
        self._generated = usage

    def served_by(self, *, revision: str, formats: str) -> None:
        # a node says these, and the table bounds them
        revision, formats = revision[:MAX_REVISION_CHARS], formats[:MAX_FORMATS_CHARS]
        if (revision, formats) == (self._revision, self._formats):
            return
        self._revision, self._formats = revision, formats
        try:
            self._journal.serve(self.ticket, revision=revision, formats=formats)
        except OSError as error:
            # the record of this process has it anyhow
            _log.error("request %s: the journal fails: %s", self.facts.request_id, error)

    def complete(self, usage: Usage, outcome: str) -> None:
        self._generated = usage
        self._interruption = None
        self._outcome = outcome

    def interrupted(self, why: Interruption) -> None:
        self._interruption = why

    def refused(self) -> None:
        self.is_refused = True

    def record(self, ended_ms: int) -> UsageRecord:
        """Return the record of all that has been said."""
        why = self._interruption
        return make_record(
            self.facts,
            billed(why, delivered=self._delivered, generated=self._generated),
            ended_ms=ended_ms,
            outcome=self._outcome if why is None else why,
            revision=self._revision,
            formats=self._formats,
        )
