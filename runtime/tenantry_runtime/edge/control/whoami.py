"""Whose a token is: what clients ask before they do anything."""

from __future__ import annotations

from starlette.responses import Response

from .call import Call, paged, success, timestamp

ROLES = ["Workers Admin"]


async def show_user(call: Call) -> Response:
    """Show the token's owner; there are accounts here, and no people."""
    return success(
        {
            "id": call.principal.token_id,
            "email": f"{call.account}@localhost",
            "username": call.account,
            "organizations": [],
        }
    )


async def verify_token(call: Call) -> Response:
    """Say that the token is good."""
    return success({"id": call.principal.token_id, "status": "active"})


async def list_accounts(call: Call) -> Response:
    """List the one account that the token is of."""
    account = await call.services.store.accounts.get(call.account)
    shown = {
        "id": account.id,
        "name": account.name,
        "type": "standard",
        "created_on": timestamp(account.created_ms),
    }
    return paged(call, [shown])


async def show_account(call: Call) -> Response:
    """Show the account."""
    account = await call.services.store.accounts.get(call.account)
    return success({"id": account.id, "name": account.name, "type": "standard"})


async def list_memberships(call: Call) -> Response:
    """List the token's account, as something to be a member of."""
    account = await call.services.store.accounts.get(call.account)
    shown = {
        "id": call.principal.token_id,
        "status": "accepted",
        "account": {"id": account.id, "name": account.name},
        "roles": ROLES,
        "permissions": {},
    }
    return paged(call, [shown])
