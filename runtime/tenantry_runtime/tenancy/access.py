"""An account and a token for a machine's own user."""

from __future__ import annotations

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import AccountSuspended, RequestError

from .authentication import Authenticator
from .store import Store
from .tokens import Scope

SCOPES = (Scope.RUN, Scope.DEPLOY)


async def ensure_access(
    store: Store, account: TenantId, *, known: str | None, token_name: str
) -> str:
    """Return a token of the account, to call models and to deploy; make both if there is none.

    `known`, the token of an earlier start, is kept as long as it is good for that, so that clients
    which hold it go on working. Raises `AccountSuspended`, or `RecordExists` for an account that was deleted.
    """
    await store.create_account(account)
    if known is not None:
        try:
            for scope in SCOPES:
                await Authenticator(store).authenticate(known, account, scope)
        except AccountSuspended:
            raise
        except RequestError:
            pass
        else:
            return known
    return (await store.create_token(account, name=token_name, scopes=SCOPES)).secret
