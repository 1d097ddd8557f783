"""A first answer of each model, right after the start."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry import AsyncAI, TenantryError
from tenantry.credentials import Credentials
from tenantry_runtime.catalog import CatalogEntry
from tenantry_runtime.supervisor.console import Console

from .console import QUESTION, short_name


async def show_demo(
    console: Console, entries: Sequence[CatalogEntry], credentials: Credentials
) -> None:
    """Ask each model a question as a user would, and print the answers as they come."""
    # not from the environment, which may name another server
    async with AsyncAI(
        base_url=credentials.base_url,
        account_id=credentials.account_id,
        api_token=credentials.api_token,
    ) as ai:
        for entry in entries:
            console.line()
            console.write(f"{short_name(entry)}, {QUESTION!r}: ")
            try:
                await _print_answer(console, ai, entry)
            except TenantryError as error:
                console.write(f"failed: {error}")
            console.line()


async def _print_answer(console: Console, ai: AsyncAI, entry: CatalogEntry) -> None:
    # at temperature 0 every start shows the same answer
    inputs = {"prompt": QUESTION, "temperature": 0}
    async with await ai.run(entry.id, inputs, stream=True) as chunks:
        async for chunk in chunks:
            console.write(chunk.text)
        if chunks.usage is not None:
            usage = chunks.usage
            console.write(
                f"  ({usage.prompt_tokens} tokens in, {usage.completion_tokens} out, thinking included)"
            )
