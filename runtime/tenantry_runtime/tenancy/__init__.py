"""Who may call, what each is promised and held to, and the store that keeps it."""

from .access import ensure_access
from .accounts import Account
from .admission import Limiter, NoLimits, Permit, Request
from .authentication import Authenticator, Principal, require_scope
from .billing import Entry, Interruption, Ledger, LedgerStatistics, NoLedger, Opening
from .incidents import IncidentKind, IncidentRecord, IncidentStore
from .plan import Plan, Quota
from .plans import DEFAULT_PLAN, StoredPlan
from .store import Store, open_store
from .tokens import TOKEN_PREFIX, NewToken, Scope, Token

__all__ = [
    "DEFAULT_PLAN",
    "TOKEN_PREFIX",
    "Account",
    "Authenticator",
    "Entry",
    "IncidentKind",
    "IncidentRecord",
    "IncidentStore",
    "Interruption",
    "Ledger",
    "LedgerStatistics",
    "Limiter",
    "NewToken",
    "NoLedger",
    "NoLimits",
    "Opening",
    "Permit",
    "Plan",
    "Principal",
    "Quota",
    "Request",
    "Scope",
    "Store",
    "StoredPlan",
    "Token",
    "ensure_access",
    "open_store",
    "require_scope",
]
