"""What all tenants together have been promised of every pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    # a base install lacks what it imports
    from tenantry_runtime.tenancy import Store


async def warn_of_promises(store: Store) -> None:
    """Say on standard error if the guaranteed shares come to more than there is."""
    promised = sum(account.terms.share.guaranteed for account in await store.accounts.list())
    # sums of decimal fractions are off by some bits
    if promised > 1 + 1e-9:
        click.echo(
            f"Warning: the guaranteed shares of all tenants come to {promised:.3g} of every pool, more "
            "than there is: while all of them ask, each gets less than its own",
            err=True,
        )
