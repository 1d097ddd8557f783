"""Held-out accuracy of a nano model: `python -m tenantry_recipes.nano.evaluate DIR` or `--url URL`.

Greedy decoding, no grammar. Every instance lies on the test side of the split, tool names included.
Each task is judged with thinking and without.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tenantry import AI
from tenantry_runtime.core import Message
from tenantry_runtime.text import load_text

from .models import checkpoint_directory
from .responder import Answer, Ask, Responder
from .scoring import is_right
from .serving import EngineResponder, HttpResponder
from .splits import Split
from .tasks import TASKS
from .tasks.task import KIMI, PERSONAS, Draw, Example, Persona, rough_length

JUDGED = (
    "addition3",
    "arithmetic",
    "chain5",
    "facts",
    "filling",
    "gym",
    "instructions",
    "lists",
    "memory",
    "reasoning",
    "retrieval",
    "retrieval_hard",
    "small_talk",
    "strings",
    "tools",
)
MAX_EXAMPLE_TOKENS = 1500
"""Of all tasks but the hard form of retrieval, which has at least 3,500."""
MAX_LONG_TOKENS = 3840
"""Leaves room in a context of 4,096 for the template and the answer."""
MAX_JUDGED = 3
"""Targets of one example, its last ones: more would read the same long prompt again and again."""


@dataclass(slots=True, eq=False)
class Trial:
    """One example being judged: which of its targets were right so far."""

    example: Example
    spoken: dict[int, Message] = field(default_factory=dict)
    """The model's own messages, by the index of the target that they stand for."""
    verdicts: dict[int, bool] = field(default_factory=dict)

    @property
    def open_targets(self) -> list[int]:
        """Targets that can be asked now: all, or the next one of a chain that is right so far."""
        targets = sorted(self.example.targets)
        if not self.example.whole:
            targets = targets[-MAX_JUDGED:]
        rest = [target for target in targets if target not in self.verdicts]
        if not self.example.whole:
            return rest
        return rest[:1] if all(self.verdicts.values()) else []

    @property
    def scores(self) -> list[bool]:
        """One verdict per target, or one for a whole example."""
        if self.example.whole:
            return [not self.open_targets and all(self.verdicts.values())]
        return list(self.verdicts.values())

    def ask(self, target: int) -> Ask:
        """Show all before the target; in a chain, what the model itself said."""
        own = self.spoken if self.example.whole else {}
        history = (own.get(at, each) for at, each in enumerate(self.example.messages[:target]))
        return Ask(messages=tuple(history), tools=self.example.tools, options=self.example.options)

    def judge(self, target: int, answer: Answer) -> None:
        self.verdicts[target] = is_right(self.example.checks[target], answer)
        expected = self.example.messages[target]
        # equal calls take the ids that the results refer to
        self.spoken[target] = Message(
            role="assistant",
            content=answer.content,
            reasoning=answer.reasoning,
            tool_calls=expected.tool_calls,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How one task went in one mode."""

    task: str
    thinking: bool
    num_right: int
    num_judged: int

    @property
    def accuracy(self) -> float:
        return self.num_right / self.num_judged


def held_out(
    name: str,
    count: int,
    *,
    thinking: bool,
    seed: int = 0,
    persona: Persona = KIMI,
    length: Callable[[str], int] = rough_length,
) -> Iterator[Example]:
    """Make examples of a task from the test side."""
    most = MAX_LONG_TOKENS if name == "retrieval_hard" else MAX_EXAMPLE_TOKENS
    for number in range(count):
        yield TASKS[name].generate(
            Draw(
                rng=random.Random(f"test {name} {thinking} {seed} {number}"),
                max_tokens=most,
                split=Split.TEST,
                persona=persona,
                length=length,
                thinking=thinking,
            )
        )


def evaluate(
    responder: Responder,
    *,
    names: Sequence[str] = JUDGED,
    count: int = 100,
    seed: int = 0,
    persona: Persona = KIMI,
    length: Callable[[str], int] = rough_length,
    report: Callable[[Score], None] = lambda score: None,
) -> list[Score]:
    """Judge `count` examples per task and mode; `report` hears of each score as it is known."""
    scores = []
    for name in names:
        for thinking in (True, False):
            examples = held_out(
                name, count, thinking=thinking, seed=seed, persona=persona, length=length
            )
            verdicts = judge(responder, list(examples))
            score = Score(
                task=name, thinking=thinking, num_right=sum(verdicts), num_judged=len(verdicts)
            )
            report(score)
            scores.append(score)
    return scores


def judge(responder: Responder, examples: Sequence[Example]) -> list[bool]:
    """Have a model answer all targets, as many at a time as are open."""
    trials = [Trial(example) for example in examples]
    while open_ones := [(trial, at) for trial in trials for at in trial.open_targets]:
        answers = responder.respond([trial.ask(at) for trial, at in open_ones])
        for (trial, at), answer in zip(open_ones, answers, strict=True):
            trial.judge(at, answer)
    return [verdict for trial in trials for verdict in trial.scores]


def table(scores: Sequence[Score]) -> str:
    """Lay scores out in Markdown, a row per task."""
    by_task: dict[str, dict[bool, Score]] = {}
    for score in scores:
        by_task.setdefault(score.task, {})[score.thinking] = score
    lines = ["| task | thinking | instant | judged |", "|---|---|---|---|"]
    for name, modes in by_task.items():
        shares = " | ".join(f"{modes[mode].accuracy:.1%}" for mode in (True, False))
        judged = sum(score.num_judged for score in modes.values())
        lines.append(f"| {name} | {shares} | {judged} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", help="checkpoint to load here")
    parser.add_argument("--url", help="base URL of a running edge, instead of a directory")
    parser.add_argument("--model", default="kimi-k2.6", help="model to ask for at --url")
    parser.add_argument("--tasks", nargs="+", choices=JUDGED, default=JUDGED)
    parser.add_argument("--count", type=int, default=100, help="examples per task and mode")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    if (arguments.directory is None) == (arguments.url is None):
        parser.error("name a directory or --url, not both")
    responder: EngineResponder | HttpResponder
    if arguments.url is not None:
        responder = HttpResponder(AI(base_url=arguments.url), arguments.model)
        # lengths as the nano model of that family counts them
        name = "kimi-k2.6-nano" if "kimi" in arguments.model else "glm-5.2-nano"
        text = load_text(checkpoint_directory(name))
    else:
        responder = EngineResponder.load(arguments.directory, threads=arguments.threads)
        text = responder.text
    with responder:
        scores = evaluate(
            responder,
            names=arguments.tasks,
            count=arguments.count,
            seed=arguments.seed,
            persona=PERSONAS[text.family],
            length=text.length,
            report=lambda score: None if arguments.json else print(_line(score), flush=True),
        )
    if arguments.json:
        print(json.dumps([_as_json(score) for score in scores], indent=2))
    else:
        print(f"\n{table(scores)}")


def _line(score: Score) -> str:
    mode = "thinking" if score.thinking else "instant"
    return f"{score.task:<16} {mode:<9} {score.accuracy:6.1%} of {score.num_judged}"


def _as_json(score: Score) -> dict[str, object]:
    return {
        "task": score.task,
        "thinking": score.thinking,
        "accuracy": score.accuracy,
        "num_right": score.num_right,
        "num_judged": score.num_judged,
    }


if __name__ == "__main__":
    main()
