"""Sentences that say nothing a question will ask for: what a long context is mostly made of."""

from __future__ import annotations

from .task import Draw
from .words import ADJECTIVES, ANIMALS, CITIES, COLORS, DAYS, FOODS, JOBS, NAMES, OBJECTS

_FORMS = (
    "{name} walked to the {object} in {city} on {day}.",
    "The {job} bought some {food} and a {color} {object}.",
    "The {adjective} {animal} slept near the {object} all morning.",
    "{name} and {other} talked about the {object} for an hour.",
    "On {day} the weather in {city} was {adjective}.",
    "The {animal} ran past the {color} {object} and did not stop.",
    "{name} likes {food} more than {other} does.",
    "Nobody in {city} had seen the {adjective} {object} before.",
    "{other} wrote a letter to the {job} about the {animal}.",
    "The {object} was {color}, and the {animal} was {adjective}.",
    "It was late when {name} came home from {city}.",
    "The {job} told {name} a story about the {animal} and some {food}.",
)


def filler_sentence(draw: Draw) -> str:
    """Make one sentence of about a dozen words."""
    name, other = draw.sample(NAMES, 2)
    return draw.choice(_FORMS).format(
        name=name,
        other=other,
        object=draw.choice(OBJECTS),
        city=draw.choice(CITIES),
        day=draw.choice(DAYS),
        job=draw.choice(JOBS),
        food=draw.choice(FOODS),
        color=draw.choice(COLORS),
        adjective=draw.choice(ADJECTIVES),
        animal=draw.choice(ANIMALS),
    )
