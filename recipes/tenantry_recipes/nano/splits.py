"""Which instances are for training and which for judging: decided by a hash of the instance alone."""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256

TEST_PERCENT = 5
"""Large enough that small instance spaces (word operations, tool names) leave hundreds to judge by."""


class Split(StrEnum):
    """A side of the line that no instance crosses."""

    TRAIN = "train"
    """Seen in training."""
    TEST = "test"
    """Only ever used to judge."""


def split_of(key: str) -> Split:
    """Tell the side of the instance whose canonical string is `key`."""
    bucket = int.from_bytes(sha256(key.encode()).digest()[:8], "big") % 100
    return Split.TEST if bucket < TEST_PERCENT else Split.TRAIN
