"""transformers' `generate` as a contender: one left-padded static batch, with a cache."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import transformers

from .contender import BenchPrompt, Run, TransformersSettings
from .memory import peak_bytes

PAD_ID = 0
"""Masked, so that any id will do."""


class TokenClock(transformers.StoppingCriteria):
    """Stops nothing, and notes when each token of the batch came."""

    def __init__(self) -> None:
        self.started_s = time.perf_counter()
        self.times: list[float] = []

    # Any: what transformers hands to every criterion
    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        self.times.append(time.perf_counter() - self.started_s)
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


class TransformersContender:
    """A `Contender`."""

    # Any: a model class that transformers chooses
    def __init__(self, model: Any) -> None:
        self._model = model

    @classmethod
    def load(cls, settings: TransformersSettings) -> TransformersContender:
        torch.set_num_threads(settings.threads)
        # Any: the library annotates few of these
        library: Any = transformers
        library.logging.set_verbosity_error()
        library.logging.disable_progress_bar()
        wanted = {
            "attn_implementation": settings.attention,
            "experts_implementation": settings.experts,
        }
        model = library.AutoModelForCausalLM.from_pretrained(
            settings.directory,
            dtype=getattr(torch, settings.dtype),
            **{key: value for key, value in wanted.items() if value is not None},
        )
        return cls(model.eval())

    def generate(self, prompts: Sequence[BenchPrompt], num_tokens: int) -> Run:
        length = max(len(prompt.token_ids) for prompt in prompts)
        padding = [[PAD_ID] * (length - len(prompt.token_ids)) for prompt in prompts]
        rows = [[*pad, *prompt.token_ids] for pad, prompt in zip(padding, prompts, strict=True)]
        mask = [[0] * len(pad) + [1] * (length - len(pad)) for pad in padding]
        clock = TokenClock()
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=torch.tensor(rows),
                attention_mask=torch.tensor(mask),
                max_new_tokens=num_tokens,
                do_sample=False,
                use_cache=True,
                # nothing ends an answer but its length
                eos_token_id=None,
                pad_token_id=PAD_ID,
                stopping_criteria=transformers.StoppingCriteriaList([clock]),
            )
        return Run(
            token_s=(tuple(clock.times),) * len(prompts),
            token_ids=tuple(map(tuple, output[:, length:].tolist())),
        )

    def peak_bytes(self) -> int:
        return peak_bytes()

    def close(self) -> None: ...
