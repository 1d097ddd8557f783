"""What a sequence's answer and prompt have, for requests with penalties or biases.

A table of the distinct tokens whose logits change, kept as tokens come. It is a function of the
sequence's tokens and of where its answer begins, so that a preemption or a hand-off changes nothing.
Pure: no torch, no numpy.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as ListLike
from itertools import repeat

from tenantry_runtime.core import Sampling

IS_SEEN = 1
ONE_TIME = 2

_FEWEST = 64


def is_adjusting(sampling: Sampling) -> bool:
    """Return whether logits are changed by what the sequence has, or by biases."""
    return bool(sampling.logit_bias) or penalties_of(sampling) != (1.0, 0.0, 0.0)


def penalties_of(sampling: Sampling) -> tuple[float, float, float]:
    """Return the penalties for repetition, frequency and presence."""
    return sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty


class TokenHistory:
    """The table of one sequence: three columns, of which the first `num_tokens` places count.

    Their memory stays where it is: when it becomes too small, the columns are others.
    """

    __slots__ = ("_num_followed", "_num_prompt", "_places", "bias", "times", "token_ids")

    def __init__(self, sampling: Sampling, token_ids: ListLike[int], num_prompt: int) -> None:
        """`token_ids` are those so far, of which the first `num_prompt` are no part of the answer."""
        biases = {token_id: bias for token_id, bias in sampling.logit_bias if token_id >= 0}
        prompt = token_ids[:num_prompt] if sampling.repetition_penalty != 1 else ()
        seen = dict.fromkeys(prompt)
        distinct = [*biases, *(token_id for token_id in seen if token_id not in biases)]
        self._places = {token_id: place for place, token_id in enumerate(distinct)}
        num_free = max(len(distinct), _FEWEST)
        self.token_ids = array("q", distinct) + array("q", repeat(0, num_free))
        self.times = array("q", [IS_SEEN if token_id in seen else 0 for token_id in distinct])
        """Twice how often the answer has the token, and 1 more if it or the prompt has it at all."""
        self.times.extend(repeat(0, num_free))
        self.bias = array("d", biases.values())
        self.bias.extend(repeat(0.0, len(self.times) - len(self.bias)))
        self._num_prompt = self._num_followed = num_prompt

    @property
    def num_tokens(self) -> int:
        return len(self._places)

    def follow(self, token_ids: ListLike[int], end: int) -> None:
        """Take account of the sequence's tokens before `end`, which never becomes less."""
        for token_id in token_ids[self._num_followed : end]:
            place = self._places.setdefault(token_id, len(self._places))
            if place == len(self.times):
                self._grow()
            self.token_ids[place] = token_id
            self.times[place] = self.times[place] + ONE_TIME | IS_SEEN
        self._num_followed = max(end, self._num_followed)

    def is_of_answer(self, position: int) -> bool:
        """Return whether the token at a position is one of the answer."""
        return position >= self._num_prompt

    def _grow(self) -> None:
        num_places = len(self.times)
        # not in place: somebody may look at them
        self.token_ids = self.token_ids + array("q", repeat(0, num_places))
        self.times = self.times + array("q", repeat(0, num_places))
        self.bias = self.bias + array("d", repeat(0.0, num_places))
