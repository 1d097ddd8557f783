"""Probes for another tenant's cache: how long a prompt's first token takes, and what is said of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from itertools import count
from pathlib import Path
from string import ascii_lowercase
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from support.classifiers import Bools, Floats
from tenantry_runtime.core import PAGE_TOKENS, Sampling
from tenantry_runtime.engine.build import build_loop
from tenantry_runtime.engine.config import ModelSource, NodeConfig
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.pool.messages import Step, Submit

MODEL = "kimi"
CHECKPOINTS = Path(str(files("tenantry_runtime"))) / "checkpoints"
CHECKPOINT = CHECKPOINTS / "kimi-k2.6-nano"

PROMPT_TOKENS = 3 * PAGE_TOKENS + 8
"""Three pages that may be cached, and a few tokens that must be computed."""

BLOCK = 40
"""Prompts half of which the victim uses before the attacker probes for all, so that what the victim does
is not what comes just before a hit."""

_FIRST_ID, _LAST_ID = 32, 900
"""Ordinary tokens of the nano vocabulary."""


WORDS = 100
"""Of a document, none of which any other has."""

OTHERS = 10
"""Documents of others that come between two probes: what a processor has learned of the branches of a
text that it has just had is forgotten after a few others."""

PROCESSOR_CACHE_BYTES = 64 << 20
"""More than the caches of processors that we have seen hold."""

Secret = TypeVar("Secret")


class Tokenizer(Protocol):
    """Any of them."""

    def encode(self, text: str) -> list[int]: ...


class Probe(NamedTuple):
    """What whoever asks sees of one request."""

    first_token_s: float
    cached_tokens: int


def a_nano_engine() -> EngineLoop:
    """Return an engine of the real model, with pages for one block of prompts of two tenants."""
    num_pages = 2 * BLOCK * (PROMPT_TOKENS // PAGE_TOKENS + 1)
    source = ModelSource(id=MODEL, directory=str(CHECKPOINT))
    return build_loop(NodeConfig(models=(source,), num_pages=num_pages, chunk_tokens=1024))


def ask(loop: EngineLoop, tenant: str, prompt: Sequence[int], request_id: str) -> Probe:
    """Ask for one token, and time it."""
    submit = Submit(
        request_id=request_id,
        tenant=tenant,
        model=MODEL,
        token_ids=list(prompt),
        sampling=Sampling(seed=1, temperature=0.0),
        stop_token_ids=(),
        max_tokens=1,
    )
    started_s = time.perf_counter()
    loop.submit(submit)
    while True:
        for message in loop.turn():
            if isinstance(message, Step):
                (sequence,) = message.sequences
                return Probe(time.perf_counter() - started_s, sequence.cached_tokens)
        assert not loop.is_idle, "the request has failed"


def probe(
    loop: EngineLoop, *, victim: str, attacker: str, num_probes: int, seed: int
) -> tuple[Floats, Bools]:
    """Probe for prompts, half of which the victim has just had computed.

    Returns time and cached tokens of each probe, and whether the victim has its prompt. Every prompt
    is drawn anew and probed once: the second probe would find what the first has left.
    """
    rng = random.Random(seed)
    names = (f"request-{number}" for number in count())

    def prompt() -> list[int]:
        return rng.choices(range(_FIRST_ID, _LAST_ID), k=PROMPT_TOKENS)

    def forget() -> None:
        # what many others' prompts would do in time
        for lane in loop.lanes:
            for tenant in {victim, attacker}:
                lane.prefixes.drop(tenant)

    return _interleaved(
        num_probes,
        rng,
        draw=prompt,
        use=lambda prompt: ask(loop, victim, prompt, next(names)),
        probe=lambda prompt: ask(loop, attacker, prompt, next(names)),
        forget=forget,
    )


def probe_tokenizer(
    load: Callable[[], Tokenizer], *, num_probes: int, seed: int
) -> tuple[Floats, Bools]:
    """Probe for documents, half of which have just been tokenized; returns the time of each probe."""
    rng = random.Random(seed)
    tokenizers = [load()]

    common = ["".join(rng.choices(ascii_lowercase, k=9)) for _ in range(4096)]
    large = np.zeros(PROCESSOR_CACHE_BYTES, dtype=np.uint8)

    def document() -> str:
        return " ".join("".join(rng.choices(ascii_lowercase, k=9)) for _ in range(WORDS))

    def time_to_encode(text: str) -> tuple[float]:
        text = text.encode().decode()  # not the victim's own object
        for _ in range(OTHERS):
            tokenizers[0].encode(" ".join(rng.choices(common, k=WORDS)))
        # what the processor's own caches still have is another matter (docs/isolation.md)
        large[:] += 1
        started_s = time.perf_counter()
        tokenizers[0].encode(text)
        return (time.perf_counter() - started_s,)

    def forget() -> None:
        tokenizers[0] = load()

    return _interleaved(
        num_probes,
        rng,
        draw=document,
        use=lambda text: tokenizers[0].encode(text),
        probe=time_to_encode,
        forget=forget,
    )


def _interleaved(
    num_probes: int,
    rng: random.Random,
    *,
    draw: Callable[[], Secret],
    use: Callable[[Secret], object],
    probe: Callable[[Secret], tuple[float, ...]],
    forget: Callable[[], None],
) -> tuple[Floats, Bools]:
    """Draw secrets block by block, use half of each block, then probe for all of it."""
    seen: list[tuple[float, ...]] = []
    truth: list[bool] = []
    for _ in range(num_probes // BLOCK):
        secrets = [draw() for _ in range(BLOCK)]
        is_used = [number % 2 == 0 for number in range(BLOCK)]
        rng.shuffle(is_used)
        for number in filter(is_used.__getitem__, range(BLOCK)):
            use(secrets[number])
        for number in rng.sample(range(BLOCK), BLOCK):
            seen.append(probe(secrets[number]))
            truth.append(is_used[number])
        forget()
    return np.array(seen, dtype=np.float64), np.array(truth)
