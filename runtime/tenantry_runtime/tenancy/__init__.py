"""Who may call, what each is promised and held to, and the store that keeps it."""

from .access import ensure_access
from .admission import Limiter, NoLimits, Permit, Request
from .authentication import Authenticator, Principal
from .billing import Entry, Ledger, NoLedger, Opening
from .plan import Plan, Quota
from .store import Account, NewToken, Store, Token, open_store
from .tokens import TOKEN_PREFIX

__all__ = [
    "TOKEN_PREFIX",
    "Account",
    "Authenticator",
    "Entry",
    "Ledger",
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
    "Store",
    "Token",
    "ensure_access",
    "open_store",
]
