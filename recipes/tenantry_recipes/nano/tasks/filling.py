"""Filling a JSON schema from prose: the answer is the object and nothing else."""

from __future__ import annotations

import json

from .conversation import TurnTask, answered
from .fields import draw_fields
from .filler import filler_sentence
from .task import Draw, Fills, Turn

_REQUESTS = (
    "Fill this schema from the text. Answer with JSON only.\nSchema: {s}\nText: {t}",
    "Extract the values as JSON.\n{s}\n\n{t}",
    "{t}\n\nWrite a JSON object for this schema: {s}",
    "Read the text: {t}\nReturn only a JSON object that matches {s}",
)


def filling(draw: Draw) -> Turn:
    """Ask for an object of one to five properties."""
    return draw.fresh(lambda: _filling(draw), lambda turn: turn.keys[0])


FILLING = TurnTask(name="filling", make_turn=filling, max_turns=3)


def _filling(draw: Draw) -> Turn:
    fields = draw_fields(draw, draw.between(1, 6))
    values = {field.name: field.kind.make(draw) for field in fields}
    sentences = [field.sentence(values[field.name]) for field in fields]
    # what the schema does not ask for stays out of the answer
    wanted = fields[: max(1, len(fields) - draw.between(0, 1))]
    if draw.chance(0.3):
        sentences.append(filler_sentence(draw))
    draw.rng.shuffle(sentences)
    schema = {
        "type": "object",
        "properties": {field.name: field.schema(described=False) for field in wanted},
        "required": [field.name for field in wanted],
    }
    value = {field.name: values[field.name] for field in wanted}
    answer = json.dumps(value)
    question = draw.choice(_REQUESTS).format(s=json.dumps(schema), t=" ".join(sentences))
    return answered(
        question,
        answer,
        reasoning=f"The fields are {', '.join(value)}.",
        keys=(f"fill {answer}",),
        check=Fills(value=value),
    )
