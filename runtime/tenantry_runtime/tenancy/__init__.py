"""Who may call: accounts, their tokens, and the store that keeps both."""

from .access import ensure_access
from .authentication import Authenticator, Principal
from .store import Account, NewToken, Store, Token, open_store
from .tokens import TOKEN_PREFIX

__all__ = [
    "TOKEN_PREFIX",
    "Account",
    "Authenticator",
    "NewToken",
    "Principal",
    "Store",
    "Token",
    "ensure_access",
    "open_store",
]
