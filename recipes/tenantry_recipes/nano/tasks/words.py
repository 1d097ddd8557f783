"""The word lists that all tasks draw from: small on purpose, so that a nano model can learn each word."""

from __future__ import annotations

NAMES = tuple(
    """Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Mia Noah Olga Paul Rosa Sam Tina Victor Wendy
    Alex Bella Carl Diana Erik Fiona George Hannah Ivan Julia Karl Laura Marco Nina Oscar Peter Ruth Simon Tom""".split()
)

CITIES = tuple(
    """Paris Rome Berlin Madrid Vienna Oslo Lisbon Dublin Athens Prague Warsaw Cairo Tokyo Delhi London Boston Chicago
    Denver Toronto Sydney Lima Geneva Milan Munich Porto""".split()
)

COLORS = tuple(
    "red blue green yellow black white orange purple brown pink gray gold silver violet".split()
)

ANIMALS = tuple(
    """cat dog horse cow sheep goat rabbit mouse tiger lion bear wolf fox eagle owl duck goose frog snake turtle whale
    shark camel monkey zebra deer otter raven swan beetle""".split()
)

FOODS = tuple(
    """apple banana cherry lemon melon peach pear plum grape bread butter cheese honey pasta pizza rice salad soup
    cake cookie tomato potato carrot onion pepper garlic""".split()
)

OBJECTS = tuple(
    """stone table chair lamp mirror bottle basket hammer ladder candle pencil paper ticket wallet jacket button
    blanket pillow window garden bridge castle tower river forest island desert valley mountain planet rocket engine
    wheel anchor compass lantern violin guitar piano drum flute camera radio clock needle thread ribbon bucket
    shovel helmet shield sword arrow crown coin jewel marble feather shell pebble rope kettle spoon plate glass
    knife fork oven stove door floor roof wall fence gate path road train boat truck plane""".split()
)

ADJECTIVES = tuple(
    """amber bright calm dark early fancy gentle happy icy jolly kind large light little lucky merry new noble old
    proud quick quiet rapid round royal sharp shiny silent simple small smart soft solid sour spicy strong sunny
    sweet tall tiny warm wild wise young""".split()
)

JOBS = tuple(
    """teacher doctor nurse farmer baker pilot sailor painter writer singer lawyer driver cook gardener engineer
    carpenter""".split()
)

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

MONTHS = tuple(
    """January February March April May June July August September October November December""".split()
)

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")

COMMON_WORDS = (*ANIMALS, *FOODS, *OBJECTS)
"""Lower-case nouns that can be spelled, sorted, listed."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"


def article(word: str) -> str:
    return "an" if word[0].lower() in "aeio" else "a"


def enumerated(items: tuple[str, ...] | list[str], last: str = "and") -> str:
    """Join as in prose: "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"
