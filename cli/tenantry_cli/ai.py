"""`workerctl ai`: ask models, and list them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from .json_output import print_json

if TYPE_CHECKING:
    from tenantry import AI


@click.group()
def ai() -> None:
    """Ask models something, and list them."""


@ai.command()
@click.argument("model")
@click.argument("prompt")
@click.option("--system", help="What the model is told to be before the prompt.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer, thinking included.")
@click.option("--temperature", type=click.FloatRange(min=0), help="0: the likeliest tokens.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="The same seed, the same answer.")
@click.option("--session", help="Calls with the same word reuse each other's work.")
@click.option("--thinking/--no-thinking", default=None, help="Whether the model thinks first.")
@click.option(
    "--stream/--no-stream", default=True, help="Print the answer as it is made (default)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
def run(
    model: str,
    prompt: str,
    system: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    session: str | None,
    thinking: bool | None,
    stream: bool,
    as_json: bool,
) -> None:
    """Ask MODEL the PROMPT; `-` reads it from standard input.

    The answer goes to standard output. The model's thinking, dimmed, goes to standard error if
    that is a terminal; so does, in any case, a line of usage.
    """
    inputs = _inputs(
        prompt=sys.stdin.read() if prompt == "-" else prompt,
        system=system,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        thinking=thinking,
    )
    with _client() as client:
        if as_json:
            print_json(client.run(model, inputs, session=session))
        else:
            _print_answer(client, model, inputs, session=session, stream=stream)


@ai.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.pass_context
def models(ctx: click.Context, as_json: bool) -> None:
    """List the models on offer, as `list` does, or say what one takes."""
    if ctx.invoked_subcommand is None:
        _list(search=None, as_json=as_json)


@models.command("list")
@click.option("--search", help="Only models whose names hold this.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def list_command(search: str | None, as_json: bool) -> None:
    """List the models on offer."""
    _list(search=search, as_json=as_json)


@models.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="It always prints JSON.")
def schema(model: str, as_json: bool) -> None:
    """Print what MODEL takes and answers, as JSON schemas."""
    from .workers.options import connect

    with connect() as plane:
        print_json(plane.get("/ai/models/schema", dict[str, Any], params={"model": model}))


def _list(*, search: str | None, as_json: bool) -> None:
    from .tables import models_table

    with _client() as client:
        offered = [
            model for model in client.models() if (search or "").lower() in model.name.lower()
        ]
    if as_json:
        print_json(offered)
    else:
        click.echo(models_table(offered))


def _client() -> AI:
    """Return a client of whoever is signed in by `login`; else the SDK finds out by itself."""
    from tenantry import AI

    from .workers.access import load_login, sign_in

    if load_login() is None:
        return AI()
    account = sign_in()
    return AI(base_url=account.base_url, account_id=account.account_id, api_token=account.api_token)


# Any: JSON of the model's inputs
def _inputs(
    *,
    prompt: str,
    system: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    thinking: bool | None,
) -> dict[str, Any]:
    if not prompt.strip():
        raise click.UsageError("the prompt is empty")
    turns = [("system", system), ("user", prompt)]
    inputs: dict[str, Any] = {
        "messages": [
            {"role": role, "content": content} for role, content in turns if content is not None
        ]
    }
    options = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    inputs.update({name: value for name, value in options.items() if value is not None})
    if thinking is not None:
        inputs["chat_template_kwargs"] = {"enable_thinking": thinking}
    return inputs


def _print_answer(
    client: AI, model: str, inputs: dict[str, Any], *, session: str | None, stream: bool
) -> None:
    from .terminal import AnswerPrinter

    with AnswerPrinter(out=sys.stdout, err=sys.stderr) as printer:
        if stream:
            with client.run(model, inputs, stream=True, session=session) as chunks:
                for chunk in chunks:
                    printer.show(reasoning=chunk.reasoning, text=chunk.text)
            printer.finish(chunks.usage, chunks.finish_reason)
        else:
            whole = client.run(model, inputs, session=session)
            printer.show(reasoning=whole.reasoning, text=whole.text)
            printer.finish(whole.usage, whole.finish_reason)
