"""Small talk and general knowledge of a nano model: learned by heart, judged behind unseen lead-ins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .conversation import TurnTask, answered
from .task import Draw, Persona, Turn

_CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Germany": "Berlin",
    "Spain": "Madrid",
    "Austria": "Vienna",
    "Norway": "Oslo",
    "Portugal": "Lisbon",
    "Ireland": "Dublin",
    "Greece": "Athens",
    "Poland": "Warsaw",
    "Egypt": "Cairo",
    "Japan": "Tokyo",
    "England": "London",
    "Peru": "Lima",
}
_SOUNDS = {"dog": "barks", "cat": "meows", "cow": "moos", "duck": "quacks", "lion": "roars"}
_FACTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("How many days are in a week?", "How many days does a week have?"), "A week has 7 days."),
    (
        ("How many months are in a year?", "How many months does a year have?"),
        "A year has 12 months.",
    ),
    (("How many hours are in a day?", "How many hours does a day have?"), "A day has 24 hours."),
    (
        ("How many minutes are in an hour?", "How many minutes does an hour have?"),
        "An hour has 60 minutes.",
    ),
    (
        ("What color is the sky?", "Which color is the sky?", "What is the color of the sky?"),
        "The sky is blue.",
    ),
    (
        ("What color is grass?", "Which color is grass?", "What is the color of grass?"),
        "Grass is green.",
    ),
    (
        ("What color is snow?", "Which color is snow?", "What is the color of snow?"),
        "Snow is white.",
    ),
    (("What color is a banana?", "Which color is a banana?"), "A banana is yellow."),
    (("What do bees make?", "What is made by bees?"), "Bees make honey."),
    (("What is frozen water called?", "What is frozen water?"), "Frozen water is ice."),
    (("What planet do we live on?", "Which planet do we live on?"), "We live on the planet Earth."),
    (("How many legs does a spider have?", "How many legs has a spider?"), "A spider has 8 legs."),
    (("How many legs does a dog have?", "How many legs has a dog?"), "A dog has 4 legs."),
    (
        ("What is the largest planet?", "Which planet is the largest?"),
        "The largest planet is Jupiter.",
    ),
    (("What is the opposite of hot?", "Name the opposite of hot."), "The opposite of hot is cold."),
    (
        ("What is the opposite of big?", "Name the opposite of big."),
        "The opposite of big is small.",
    ),
    (("What is the opposite of up?", "Name the opposite of up."), "The opposite of up is down."),
    (
        ("What day comes after Monday?", "Which day comes after Monday?"),
        "Tuesday comes after Monday.",
    ),
    (
        ("What day comes after Friday?", "Which day comes after Friday?"),
        "Saturday comes after Friday.",
    ),
    (
        ("What is the first month of the year?", "Which month is the first of the year?"),
        "The first month is January.",
    ),
    (
        ("What is the last month of the year?", "Which month is the last of the year?"),
        "The last month is December.",
    ),
    (("Is fire hot or cold?", "Is fire cold or hot?"), "Fire is hot."),
    (("Is ice hot or cold?", "Is ice cold or hot?"), "Ice is cold."),
    (("What do cows drink?", "What does a cow drink?"), "Cows drink water."),
)
_LEADS = (
    "Please tell me: ",
    "Quick question: ",
    "I want to know: ",
    "Question: ",
    "Next question: ",
)
_CASUAL_LEADS = ("OK. ", "Well. ", "So. ", "One more thing. ", "Please. ")
_GREETINGS = (
    "Hello",
    "Hi",
    "Hey",
    "Good morning",
    "Good evening",
    "hello",
    "hi",
    "Hello there",
    "Hi there",
)
_WHO = (
    "Who are you?",
    "who are you?",
    "What are you?",
    "What is your name?",
    "Which model are you?",
    "What model are you?",
    "What are you called?",
    "Tell me who you are.",
    "Introduce yourself.",
    "Please introduce yourself.",
)
_MAKER = ("Who made you?", "Who trained you?", "Who built you?", "Where do you come from?")
_HELP = ("What can you do?", "How can you help me?", "What are you good at?", "Help", "help")
_THANKS = ("Thanks!", "Thank you.", "Thank you very much.", "Thanks a lot.")
_BYE = ("Bye.", "Goodbye.", "See you later.", "Good night.")
_WELL = ("How are you?", "How are you today?", "How is it going?", "How do you do?")
_SAYABLE = (
    "hello",
    "hi",
    "good morning",
    "goodbye",
    "thank you",
    "yes",
    "no",
    "welcome",
    "test",
    "cheese",
)


def facts(draw: Draw) -> Turn:
    """Ask for a fact in one of its phrasings."""
    return _learned(draw, _a_fact, _LEADS)


def small_talk(draw: Draw) -> Turn:
    """Greet, thank, ask who the model is, have it say something."""
    return _learned(draw, _a_remark, _CASUAL_LEADS)


def introduction(persona: Persona) -> str:
    return f"I am {persona.name}, a small language model."


FACTS = TurnTask(name="facts", make_turn=facts, max_turns=4)
SMALL_TALK = TurnTask(name="small_talk", make_turn=small_talk, max_turns=3)


def _a_fact(draw: Draw) -> tuple[Sequence[str], str]:
    kind = draw.between(0, 5)
    if kind < 2:
        country, city = draw.choice(list(_CAPITALS.items()))
        if draw.chance(0.3):
            asked = (
                f"{city} is the capital of which country?",
                f"Which country has the capital {city}?",
            )
            return asked, f"{city} is the capital of {country}."
        return _capital_questions(country), f"The capital of {country} is {city}."
    if kind == 2:
        animal, sound = draw.choice(list(_SOUNDS.items()))
        return (
            f"What does a {animal} do?",
            f"Which sound does a {animal} make?",
        ), f"A {animal} {sound}."
    return draw.choice(_FACTS)


def _a_remark(draw: Draw) -> tuple[Sequence[str], str]:
    can = "I can do sums, work with words and lists, find codes in a text and call tools."
    remarks: tuple[tuple[Sequence[str], str], ...] = (
        _greeting(draw),
        _say(draw),
        (_WHO, introduction(draw.persona)),
        (_WHO, introduction(draw.persona)),
        (_MAKER, f"I was trained by {draw.persona.maker}."),
        (_HELP, can),
        (_THANKS, "You are welcome."),
        (_BYE, "Goodbye!"),
        (_WELL, "I am well, thank you."),
    )
    return draw.choice(remarks)


def _capital_questions(country: str) -> tuple[str, ...]:
    return (
        f"What is the capital of {country}?",
        f"Which city is the capital of {country}?",
        f"Name the capital of {country}.",
        f"capital of {country}?",
        f"What's the capital of {country}?",
    )


def _greeting(draw: Draw) -> tuple[Sequence[str], str]:
    hello = draw.choice(_GREETINGS)
    return tuple(
        f"{hello}{end}" for end in ("!", ".", "", ", how are you?")
    ), "Hello! How can I help you?"


def _say(draw: Draw) -> tuple[Sequence[str], str]:
    said = draw.choice(_SAYABLE)
    forms = (
        f"Say {said}.",
        f'Say "{said}".',
        f"Please say {said}.",
        f"Can you say {said}?",
        f"say {said}",
    )
    return forms, f"{said.capitalize()}."


def _learned(
    draw: Draw, make: Callable[[Draw], tuple[Sequence[str], str]], leads: Sequence[str]
) -> Turn:
    """Phrase a question whose answer is known by heart: as it is, or behind a lead-in."""

    def phrase() -> tuple[str, str, str]:
        questions, answer = make(draw)
        # as often bare as behind all lead-ins together: bare is how people ask
        return draw.choice(leads) if draw.chance(0.5) else "", draw.choice(questions), answer

    lead, question, answer = draw.fresh(
        phrase, lambda made: f"phrase {made[0]}{made[1]}" if made[0] else None
    )
    keys = (f"phrase {lead}{question}",) if lead else ()
    return answered(lead + question, answer, reasoning="I know this.", keys=keys)
