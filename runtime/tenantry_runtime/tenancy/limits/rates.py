"""The arithmetic of a rate: the generic cell rate algorithm, with one instant as all its state.

From ITU-T I.371 (annex A, "virtual scheduling"). A rate of L units a minute is a bucket with room for L
units, into which L units a minute flow. How much is in it is said by when it will be full again. A
unit that is taken moves that instant by a minute / L; what would move it beyond a minute from now is
not there, and comes when enough has flowed in. So nothing runs in the background, and there is one
number to agree upon.

In any interval of t seconds at most L * (1 + t / 60) units are taken: a burst of a whole minute's, and
what flows in. Two processes whose clocks differ by d seconds take at most L * d / 60 more, once.

A reservation is corrected when it is known what was used:

| | |
|---|---|
| more was used than reserved | the rest is taken then, whether it is there or not: the next ones wait longer |
| less | of the difference, what has not flowed in again since is given back |

What is taken is filled up again in the order of taking. So a reservation's turn ends where the bucket
would have been full right after it, earlier by what others have given back since. Therefore no more is
given back than is still missing because of this reservation: the bucket never has more in it than if
each had taken at first what it came to use.
"""

from __future__ import annotations

from typing import NamedTuple

WINDOW_US = 60_000_000
"""Limits are per minute. Also the most that can be taken at one time: a minute's units."""


class Level(NamedTuple):
    """What is in a bucket."""

    full_us: int = 0
    """Unix time in microseconds at which it is full again."""
    returned_us: int = 0
    """What reservations have given back so far, in all."""


class Reservation(NamedTuple):
    """Units that have been taken, of which some may not be needed."""

    cost_us: int
    end_us: int
    """When the last of it will have flowed in again, if nobody gives anything back."""
    returned_us: int
    """Of the level when it was made."""


def cost_us(num_units: int, per_minute: int) -> int:
    """Return how long it takes until so many units have flowed in.

    Rounded down, to at least a microsecond: so the whole limit is there, one unit at a time. What that
    adds to a rate is less than a thousandth where a minute sees up to 60,000 requests.
    """
    return max(1, num_units * WINDOW_US // per_minute) if num_units else 0


def wait_us(level: Level, cost_us: int, now_us: int) -> int:
    """Return how long it takes until so much is there; 0: it is. More than the window never is."""
    assert cost_us <= WINDOW_US
    return max(0, level.full_us + cost_us - WINDOW_US - now_us)


def take(level: Level, cost_us: int, now_us: int) -> Level:
    """Take it, whether it is there or not."""
    return Level(max(level.full_us, now_us) + cost_us, level.returned_us)


def reserve(level: Level, cost_us: int, now_us: int) -> tuple[Level, Reservation]:
    """Take it for now."""
    taken = take(level, cost_us, now_us)
    return taken, Reservation(cost_us, taken.full_us, taken.returned_us)


def settle(level: Level, reservation: Reservation, used_us: int, now_us: int) -> Level:
    """Correct a reservation to what was used."""
    surplus_us = reservation.cost_us - used_us
    if surplus_us <= 0:
        return take(level, -surplus_us, now_us)
    moved_us = level.returned_us - reservation.returned_us
    missing_us = max(0, reservation.end_us - moved_us - now_us)
    back_us = min(surplus_us, missing_us)
    return Level(level.full_us - back_us, level.returned_us + back_us)


def num_free(level: Level, per_minute: int, now_us: int) -> int:
    """Return how many units are there: the most whose cost needs no wait."""
    there_us = WINDOW_US - max(0, level.full_us - now_us)
    return max(0, ((there_us + 1) * per_minute - 1) // WINDOW_US)
