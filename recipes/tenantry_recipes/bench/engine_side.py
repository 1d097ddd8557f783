"""This runtime's engine as a contender: the step loop of a node, turned in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import count

from tenantry_runtime.core import Sampling
from tenantry_runtime.engine.build import build_loop
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.pool.messages import Failed, SequenceTokens, Step, Submit

from .contender import BenchPrompt, EngineSettings, Run
from .errors import BenchmarkError
from .memory import peak_bytes
from .node_config import MODEL, node_config

GREEDY = Sampling(seed=0, temperature=0.0)


class EngineContender:
    """A `Contender`."""

    def __init__(self, loop: EngineLoop) -> None:
        self._loop = loop
        self._names = map(str, count())

    @classmethod
    def load(cls, settings: EngineSettings) -> EngineContender:
        return cls(build_loop(node_config(settings)))

    def generate(self, prompts: Sequence[BenchPrompt], num_tokens: int) -> Run:
        names = [next(self._names) for _ in prompts]
        submits = [
            _submit(name, prompt, num_tokens) for name, prompt in zip(names, prompts, strict=True)
        ]
        times: dict[str, list[float]] = {name: [] for name in names}
        ids: dict[str, list[int]] = {name: [] for name in names}
        started_s = time.perf_counter()
        for submit in submits:
            self._loop.submit(submit)
        for tokens in self._reports():
            ids[tokens.request_id] += tokens.token_ids
            came_s = time.perf_counter() - started_s
            times[tokens.request_id] += [came_s] * len(tokens.token_ids)
        return Run(
            token_s=tuple(tuple(times[name]) for name in names),
            token_ids=tuple(tuple(ids[name]) for name in names),
        )

    def peak_bytes(self) -> int:
        return peak_bytes()

    def close(self) -> None:
        self._loop.close()

    def _reports(self) -> Iterator[SequenceTokens]:
        while not self._loop.is_idle:
            for told in self._loop.turn():
                if isinstance(told, Failed):
                    raise BenchmarkError(f"the engine failed a request: {told.message}")
                if isinstance(told, Step):
                    yield from told.sequences


def _submit(name: str, prompt: BenchPrompt, num_tokens: int) -> Submit:
    return Submit(
        request_id=name,
        tenant="benchmark",
        model=MODEL,
        token_ids=list(prompt.token_ids),
        sampling=GREEDY,
        # nothing ends an answer but its length
        stop_token_ids=(),
        max_tokens=num_tokens,
    )
