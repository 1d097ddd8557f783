"""One usage record for each request: exact, never lost, never doubled."""

from .ledger import JOURNAL_DIRECTORY, JournaledLedger, open_ledger
from .record import UsageRecord, billed

__all__ = [
    "JOURNAL_DIRECTORY",
    "JournaledLedger",
    "UsageRecord",
    "billed",
    "open_ledger",
]
