"""Options that several benchmarks share."""

from __future__ import annotations

import argparse


def concurrencies(text: str) -> tuple[int, ...]:
    """Read a list such as `1,8,32`."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 1,8,32")
    return numbers
