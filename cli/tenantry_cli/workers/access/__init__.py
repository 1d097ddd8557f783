"""As whom `workerctl` calls which control plane."""

from __future__ import annotations

from .account import Account, NotSignedIn, Source, sign_in
from .saved import Saved, forget_login, load_login, save_login

__all__ = [
    "Account",
    "NotSignedIn",
    "Saved",
    "Source",
    "forget_login",
    "load_login",
    "save_login",
    "sign_in",
]
