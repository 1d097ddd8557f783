"""Prompts of one length for every contender, no two of which share a page of cache."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, cycle, islice

from msgspec.structs import replace

from tenantry_recipes.nano.splits import Split
from tenantry_recipes.nano.tasks import TASKS
from tenantry_recipes.nano.tasks.task import PERSONAS, Draw, Example
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.text import TextModel

from .contender import BenchPrompt

TASK_NAMES = ("retrieval", "instructions", "lists", "memory", "reasoning", "strings")
"""Tasks without tools, whose declarations would begin many prompts alike."""

LEAST_TOKENS = 100
MOST_TOKENS = 150

_MAX_TRIES = 200
"""Examples per prompt wanted; about one in ten is of the right length."""

_NUM_QUESTIONS = 20
"""Of which long prompts are made, at least: some thousand tokens of text."""


def distinct_prompts(text: TextModel, number: int, *, seed: int = 0) -> list[BenchPrompt]:
    """Make `number` prompts of `LEAST_TOKENS` to `MOST_TOKENS` tokens in the model's own format.

    Whole pages of cache are what engines share: no two prompts begin with the same page.
    """
    prompts: list[BenchPrompt] = []
    first_pages: set[tuple[int, ...]] = set()
    for example in islice(_examples(text, seed), number * _MAX_TRIES):
        prompt = _prompt(text, example)
        page = prompt.token_ids[:PAGE_TOKENS]
        if LEAST_TOKENS <= len(prompt.token_ids) <= MOST_TOKENS and page not in first_pages:
            first_pages.add(page)
            prompts.append(prompt)
            if len(prompts) == number:
                return prompts
    raise AssertionError(f"only {len(prompts)} of {number} prompts have the right length")


def long_prompts(
    text: TextModel, number: int, *, num_tokens: int, seed: int = 0
) -> list[BenchPrompt]:
    """Make prompts of at least `num_tokens` tokens, and of at most `MOST_TOKENS` more, likewise.

    Each is one of `distinct_prompts`, with the questions of others behind its own.
    """
    short = distinct_prompts(text, max(number, _NUM_QUESTIONS), seed=seed)
    return [
        _lengthened(text, prompt, cycle(short[at + 1 :] + short[: at + 1]), num_tokens)
        for at, prompt in enumerate(short[:number])
    ]


def take(prompts: Iterator[BenchPrompt], number: int) -> tuple[BenchPrompt, ...]:
    """Take the next prompts, as many as that."""
    return tuple(next(prompts) for _ in range(number))


def _lengthened(
    text: TextModel, prompt: BenchPrompt, others: Iterator[BenchPrompt], num_tokens: int
) -> BenchPrompt:
    while len(prompt.token_ids) < num_tokens:
        *before, last = prompt.messages
        content = f"{last.content}\n\n{next(others).messages[-1].content}"
        messages = (*before, replace(last, content=content))
        token_ids = tuple(text.encode(text.render(messages, (), prompt.options)))
        prompt = BenchPrompt(token_ids=token_ids, messages=messages, options=prompt.options)
    return prompt


def _examples(text: TextModel, seed: int) -> Iterator[Example]:
    for at, name in zip(count(), cycle(TASK_NAMES), strict=False):
        rng = random.Random(f"bench {seed} {at}")
        yield TASKS[name].generate(
            Draw(
                rng=rng,
                # with its answer, an example is longer than its first question
                max_tokens=rng.randint(MOST_TOKENS, 3 * MOST_TOKENS),
                split=Split.TEST,
                persona=PERSONAS[text.family],
                length=text.length,
            )
        )


def _prompt(text: TextModel, example: Example) -> BenchPrompt:
    """Ask the example's last question."""
    messages = example.messages[: max(example.targets)]
    rendered = text.render(messages, example.tools, example.options)
    return BenchPrompt(
        token_ids=tuple(text.encode(rendered)), messages=messages, options=example.options
    )
