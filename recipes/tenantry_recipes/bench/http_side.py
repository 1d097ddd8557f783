"""This runtime over HTTP as a contender: what a client sees, edge and client included."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from anyio.from_thread import BlockingPortal, start_blocking_portal

from tenantry_runtime.engine.config import NodeConfig

from .contender import BenchPrompt, HttpSettings, Run
from .errors import BenchmarkError
from .load import closed_loop
from .node_config import node_config
from .serving import Served, serving_nodes
from .stream_client import StreamedAnswer


class HttpContender:
    """A `Contender`."""

    def __init__(self, served: Served, portal: BlockingPortal, resources: ExitStack) -> None:
        """Closing the contender closes `resources`, in which `portal` runs."""
        self._served = served
        self._portal = portal
        self._resources = resources

    @classmethod
    def start(cls, settings: HttpSettings) -> HttpContender:
        engine = node_config(settings.engine, vocab_limit=settings.vocab_limit)
        return cls.over({"node": engine}, settings.text_directory)

    @classmethod
    def over(cls, engines: Mapping[str, NodeConfig], text_directory: Path) -> HttpContender:
        """Start nodes of one model, as `serving_nodes` does, and their edge."""
        with ExitStack() as stack:
            state = stack.enter_context(tempfile.TemporaryDirectory(prefix="tenantry-bench-"))
            portal = stack.enter_context(start_blocking_portal())
            served = stack.enter_context(
                portal.wrap_async_context_manager(
                    serving_nodes(engines, Path(state), text_directory=text_directory)
                )
            )
            return cls(served, portal, stack.pop_all())

    def generate(self, prompts: Sequence[BenchPrompt], num_tokens: int) -> Run:
        requests = [self._served.request(prompt, num_tokens) for prompt in prompts]
        load = self._portal.call(closed_loop, requests, len(requests))
        for prompt, answer in zip(prompts, load.answers, strict=True):
            _check_lengths(answer, len(prompt.token_ids), num_tokens)
        return Run(token_s=tuple(_token_times(answer, load.started_s) for answer in load.answers))

    def peak_bytes(self) -> int:
        return self._served.peak_bytes()

    def close(self) -> None:
        self._resources.close()


def _check_lengths(answer: StreamedAnswer, num_prompt: int, num_tokens: int) -> None:
    found = (answer.prompt_tokens, answer.completion_tokens)
    if found != (num_prompt, num_tokens):
        raise BenchmarkError(
            f"prompt and answer have {found} tokens, expected {(num_prompt, num_tokens)}"
        )


def _token_times(answer: StreamedAnswer, started_s: float) -> tuple[float, ...]:
    """Return one time per token; a token whose text waits for the next comes with it."""
    times = [came_s - started_s for came_s in answer.text_s]
    missing = answer.completion_tokens - len(times)
    return (*times, *([times[-1]] * missing))
