"""What text costs an edge: `python -m tenantry_recipes.bench.text [--kimi-tokenizer DIR]`.

A conversation of several turns, with tools, calls and their results, is rendered by the chat template
and tokenized, as for every request; and an answer with thinking and calls is read back, a token at a
time, as for every stream. The nano models have small vocabularies; with `--kimi-tokenizer`, a directory
that has `tiktoken.model` and `tokenizer_config.json` of a released Kimi, its own is measured too.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count, cycle
from pathlib import Path

from tenantry_runtime.catalog import load_catalog
from tenantry_runtime.core import FinishReason, Message, RenderOptions, Tool, ToolCall
from tenantry_runtime.text import Prompt, TextModel, load_text, training_ids

from .errors import BenchmarkError
from .machine import describe_machine
from .prompts import distinct_prompts
from .spread import Spread
from .table import number, spread, table

NUM_TOKENS = 4000
NUM_ROUNDS = 50
NUM_WARM = 3
NUM_QUESTIONS = 20
OPTIONS = RenderOptions()
PACKAGES = ("jinja2", "tiktoken", "tokenizers")

TOOLS = tuple(
    Tool(
        name=name,
        description=f"Find {what} by name, and say what is known of it.",
        parameters={
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": f"Part of the name of {what}"},
                "most": {"type": "integer", "minimum": 1, "description": "How many to return"},
                "kinds": {"type": "array", "items": {"enum": ["old", "new"]}},
            },
            "required": ["query"],
        },
    )
    for name, what in {
        "find_person": "a person",
        "find_place": "a place",
        "find_paper": "a paper",
        "find_word": "a word",
    }.items()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one text layer."""

    name: str
    num_messages: int
    num_tokens: int
    render_ms: Spread
    tokenize_ms: Spread
    read_us: Spread
    """Per token of an answer."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kimi-tokenizer", type=Path, metavar="DIR")
    parser.add_argument("--tokens", type=int, default=NUM_TOKENS)
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    figures = [
        measure(name, text, num_tokens=given.tokens, num_rounds=given.rounds)
        for name, text in text_layers(given.kimi_tokenizer)
    ]
    if given.json:
        print(json.dumps([asdict(each) for each in figures]))
        return
    print(describe_machine(1, PACKAGES))
    print(f"A conversation of at least {given.tokens} tokens, {given.rounds} times\n")
    print(report(figures))


def text_layers(kimi_tokenizer: Path | None = None) -> Iterator[tuple[str, TextModel]]:
    """Load those of the built-in models, and Kimi's with another tokenizer if there is one."""
    for entry in load_catalog().entries:
        text = load_text(Path(entry.directory))
        yield f"{entry.id}, {text.vocab_size} ids", text
        if kimi_tokenizer is not None and text.family == "kimi":
            released = _with_tokenizer(Path(entry.directory), kimi_tokenizer)
            yield f"{entry.id}, {released.vocab_size} ids", released


def measure(
    name: str, text: TextModel, *, num_tokens: int = NUM_TOKENS, num_rounds: int = NUM_ROUNDS
) -> Figures:
    """Time one text layer; raise `BenchmarkError` where it does not read what it writes."""
    messages = conversation(text, num_tokens)
    prompt = text.render(messages, TOOLS, OPTIONS)
    ids = text.encode(prompt)
    answer = _answer(text, messages)
    return Figures(
        name=name,
        num_messages=len(messages),
        num_tokens=len(ids),
        render_ms=_timed(lambda: text.render(messages, TOOLS, OPTIONS), num_rounds).scaled(1e3),
        tokenize_ms=_timed(lambda: text.encode(prompt), num_rounds).scaled(1e3),
        read_us=_timed(lambda: _read(text, prompt, answer), num_rounds).scaled(1e6 / len(answer)),
    )


def conversation(text: TextModel, num_tokens: int) -> tuple[Message, ...]:
    """Make a conversation whose prompt has at least so many tokens: questions, calls and answers."""
    questions = [prompt.messages[-1].content for prompt in distinct_prompts(text, NUM_QUESTIONS)]
    messages = [Message(role="system", content="Answer in a few words. Look up what you can.")]
    for turn, question in zip(count(), cycle(questions), strict=False):
        messages.append(Message(role="user", content=question))
        if len(text.encode(text.render(messages, TOOLS, OPTIONS))) >= num_tokens:
            return tuple(messages)
        call = ToolCall(
            id=f"call_{turn}",
            name=TOOLS[turn % len(TOOLS)].name,
            arguments=json.dumps({"query": question[:40], "most": 3, "kinds": ["new"]}),
        )
        thought = f"I had better look that up. It is question {turn}."
        messages.append(Message(role="assistant", reasoning=thought, tool_calls=(call,)))
        found = json.dumps({"found": [question[:80]], "more": False})
        messages.append(Message(role="tool", content=found, tool_call_id=call.id))
        messages.append(Message(role="assistant", content=f"What I found: {question[:80]}"))
    raise AssertionError("questions never end")


def report(figures: Sequence[Figures]) -> str:
    """Lay the figures out."""
    header = ("model", "messages", "tokens", "render ms", "tokenize ms", "both ms", "read us/token")
    rows = [
        (
            each.name,
            str(each.num_messages),
            str(each.num_tokens),
            spread(each.render_ms),
            spread(each.tokenize_ms),
            number(each.render_ms.median + each.tokenize_ms.median),
            spread(each.read_us),
        )
        for each in figures
    ]
    return table(header, rows)


def _answer(text: TextModel, messages: Sequence[Message]) -> list[int]:
    """Return what the model would write to think and call two tools."""
    calls = tuple(
        ToolCall(id=str(at), name=tool.name, arguments=json.dumps({"query": "all of them " * 8}))
        for at, tool in enumerate(TOOLS[:2])
    )
    thought = "One of these must be right, so I look for both of them. " * 8
    message = Message(role="assistant", reasoning=thought, content="Wait.", tool_calls=calls)
    ids, is_target = training_ids(text, [*messages, message], TOOLS, OPTIONS, {len(messages)})
    return [each for each, marked in zip(ids, is_target, strict=True) if marked]


def _read(text: TextModel, prompt: Prompt, answer: Sequence[int]) -> None:
    machine = text.machine(prompt.initial, TOOLS)
    for token_id in answer:
        machine.feed((token_id,))
    machine.finish(FinishReason.STOP)
    if machine.num_tool_calls != 2:
        raise BenchmarkError(f"read {machine.num_tool_calls} calls, not 2")


def _timed(work: Callable[[], object], num_rounds: int) -> Spread:
    times: list[float] = []
    for _ in range(num_rounds + NUM_WARM):
        started_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - started_s)
    return Spread.of(times[NUM_WARM:])


def _with_tokenizer(checkpoint: Path, tokenizer: Path) -> TextModel:
    """Load a checkpoint's template with the vocabulary of another directory."""
    with tempfile.TemporaryDirectory() as folder:
        joined = Path(folder)
        config = json.loads((checkpoint / "config.json").read_text())
        # as many ids as there are: the model itself is not loaded
        config.pop("text_config", None)
        config["vocab_size"] = 1 << 20
        (joined / "config.json").write_text(json.dumps({**config, "eos_token_id": None}))
        (joined / "chat_template.jinja").write_text(
            (checkpoint / "chat_template.jinja").read_text()
        )
        for name in ("tiktoken.model", "tokenizer_config.json"):
            (joined / name).symlink_to((tokenizer / name).absolute())
        return load_text(joined)


if __name__ == "__main__":
    main()
