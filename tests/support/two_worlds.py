"""The same engine in two worlds, which differ in nothing but what one tenant's prompts say.

Both worlds get the same script: when the victim asks for how much, and what the attacker asks when.
In one the victim's prompts are the very ones that the attacker asks for, in the other each of their
tokens is another one. What of the victim is cached, and how much of it, is the same in both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from support.engine import a_submit, an_engine
from tenantry_runtime.engine.build import PageParts
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.pool.messages import NodeMessage, Step, Submit

VOCABULARY = 24

VICTIM, ATTACKER = "victim", "attacker"

NUM_PROMPTS = 5

Meaning = Callable[[int], int]


class Request(NamedTuple):
    """One tenant asks for one of the prompts."""

    tenant: str
    prompt: int
    num_tokens: int
    max_tokens: int


class Turns(NamedTuple):
    """The engine turns so often."""

    num_turns: int


class Script(NamedTuple):
    """What happens, and where."""

    num_pages: int
    chunk_tokens: int
    prompts: list[list[int]]
    events: list[Request | Turns]


def as_it_is(token: int) -> int:
    return token


def as_its_opposite(token: int) -> int:
    return VOCABULARY - token


def a_script(seed: int) -> Script:
    """Write one in which both tenants want most of the pages, and come back to what they had."""
    rng = random.Random(seed)
    prompts = [rng.choices(range(1, VOCABULARY), k=420) for _ in range(NUM_PROMPTS)]
    # some begin alike
    prompts[1][:200] = prompts[0][:200]
    events: list[Request | Turns] = []
    for _ in range(30):
        if rng.random() < 0.5:
            events.append(Turns(rng.randint(1, 12)))
            continue
        tenant = rng.choice([VICTIM, ATTACKER])
        chosen, length = rng.randrange(NUM_PROMPTS), rng.choice([100, 200, 300, 420])
        events.append(Request(tenant, chosen, length, rng.choice([1, 5, 70])))
    return Script(rng.choice([12, 16, 24]), rng.choice([32, 64, 200]), prompts, events)


def what_the_attacker_sees(
    script: Script,
    meaning: Meaning,
    parts: PageParts | None = None,
    *,
    runs_ahead: bool = False,
) -> list[tuple[int, object]]:
    """Run a script; return all that the attacker is told, and in which turn."""
    loop = an_engine(
        num_pages=script.num_pages,
        max_batch=4,
        chunk_tokens=script.chunk_tokens,
        clock_s=lambda: 0.0,
        parts=parts,
        runs_ahead=runs_ahead,
    )
    seen: list[tuple[int, object]] = []
    turn = 0
    for number, event in enumerate([*script.events, Turns(3000)]):
        if isinstance(event, Request):
            loop.submit(_submit(script, event, meaning, number))
            continue
        for messages in _turns(loop, event.num_turns):
            turn += 1
            seen += [(turn, told) for told in _told(messages)]
    assert loop.is_idle, "the script has no end"
    return seen


def _turns(loop: EngineLoop, num_turns: int) -> Iterator[list[NodeMessage]]:
    for _ in range(num_turns):
        if loop.is_idle:
            return
        yield loop.turn()


def _submit(script: Script, request: Request, meaning: Meaning, number: int) -> Submit:
    token_ids = script.prompts[request.prompt][: request.num_tokens]
    if request.tenant == VICTIM:
        token_ids = [meaning(token) for token in token_ids]
    # no token ends an answer: how long the victim's are is not what this is about
    return a_submit(
        f"{request.tenant}-{number}",
        prompt=token_ids,
        tenant=request.tenant,
        max_tokens=request.max_tokens,
        stop_token_ids=(),
    )


def _told(messages: list[NodeMessage]) -> Iterator[object]:
    for message in messages:
        if isinstance(message, Step):
            yield from (s for s in message.sequences if s.request_id.startswith(ATTACKER))
        elif getattr(message, "request_id", "").startswith(ATTACKER):
            yield message
