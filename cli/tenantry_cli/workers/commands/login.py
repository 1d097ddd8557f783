"""`workerctl login`, `logout` and `whoami`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tenantry_cli.workers.options import connect, json_option
from tenantry_cli.workers.output import Screen

if TYPE_CHECKING:
    from tenantry_cli.workers.access import Account

DEFAULT_URL = "http://127.0.0.1:8787/client/v4"
_SOURCES = {
    "environment": "TENANTRY_API_TOKEN in the environment",
    "login": "`workerctl login`, in a file that only you can read",
    "keyring": "`workerctl login`, in the system's keyring",
    "dev": "`workerctl dev` on this machine",
}


@click.command()
@click.argument("url", metavar="[URL]", required=False)
@click.option("--account", metavar="ACCOUNT", help="The account, if the token's is not told.")
@click.option(
    "--use-keyring/--no-keyring",
    default=False,
    help="Keep the token in the system's keyring (package keyring), not in a file of mode 0600.",
)
@json_option
def login(url: str | None, account: str | None, use_keyring: bool, screen: Screen) -> None:
    """Sign in to the control plane at URL with a token of the scope `deploy`.

    The token is asked for, or read from a pipe. An operator makes one with
    `workerctl token create TENANT --scope deploy --scope run`.

    \b
    workerctl login https://ai.example.com < token.txt
    """
    from tenantry_cli.workers.access import Account, Saved, Source, save_login
    from tenantry_cli.workers.access.account import check_base_url, check_token

    base_url = _base_url(url)
    check_base_url(base_url)
    token = _token(base_url)
    check_token(token)
    asked = Account(
        base_url=base_url, account_id=account or "", api_token=token, source=Source.LOGIN
    )
    account_id = account or _only_account(asked)
    save_login(
        Saved(
            base_url=base_url,
            account_id=account_id,
            api_token=token,
            is_in_keyring=use_keyring,
        )
    )
    screen.done(f"Signed in to {base_url} as {account_id}")
    screen.result({"base_url": base_url, "account": account_id, "keyring": use_keyring})


@click.command()
@json_option
def logout(screen: Screen) -> None:
    """Forget the token of `workerctl login`. It stays good: an operator revokes it."""
    from tenantry_cli.workers.access import forget_login

    had = forget_login()
    screen.say("Signed out." if had else "Nobody was signed in.")
    screen.result({"signed_out": had})


@click.command()
@json_option
def whoami(screen: Screen) -> None:
    """Show the account and the control plane; ends with 1 where the token is not good."""
    with connect() as plane:
        account = plane.account
        accounts = plane.get("//accounts", list[dict[str, Any]])
    name = next(
        (str(each.get("name", "")) for each in accounts if each.get("id") == account.account_id), ""
    )
    if accounts and not any(each.get("id") == account.account_id for each in accounts):
        screen.warn(
            f"the token is not of {account.account_id!r}, but of "
            f"{', '.join(str(each.get('id')) for each in accounts)}"
        )
    screen.say(f"Account:        {account.account_id}" + (f" ({name})" if name else ""))
    screen.say(f"Control plane:  {account.base_url}")
    screen.say(f"Token from:     {_SOURCES[account.source]}")
    screen.result(
        {
            "account": account.account_id,
            "name": name,
            "base_url": account.base_url,
            "token_from": account.source.value,
        }
    )


def _base_url(url: str | None) -> str:
    if url is None:
        url = DEFAULT_URL
        if sys.stdin.isatty():
            url = str(click.prompt("Control plane", default=DEFAULT_URL, err=True))
    url = url.rstrip("/")
    if "://" not in url:
        url = f"https://{url}"
    return url if url.endswith("/client/v4") else f"{url}/client/v4"


def _token(base_url: str) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(f"Token for {base_url}", hide_input=True, err=True)).strip()
    token = sys.stdin.read().strip()
    if not token:
        raise click.UsageError("standard input is empty: pipe the token, or type it in a terminal")
    return token


def _only_account(account: Account) -> str:
    from tenantry_cli.workers.api import ControlPlane

    with ControlPlane(account) as plane:
        accounts = plane.get("//accounts", list[dict[str, Any]])
    if len(accounts) == 1:
        return str(accounts[0]["id"])
    there = ", ".join(str(each.get("id")) for each in accounts) or "none"
    raise click.UsageError(f"which account is it? the token's are: {there}; say --account")
