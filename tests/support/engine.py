"""Builders for the engine's tests: submits, small engines, and what a request must answer."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch

from support.fake_decoder import FakeCache, FakeConfig, FakeDecoder, next_logits
from support.sampler_reference import adjusted, draw, logprobs
from tenantry_runtime.cache.wire_pages import WirePages
from tenantry_runtime.core import ChosenLogprob, FinishReason, Phase, Sampling, Share
from tenantry_runtime.engine.build import LoadedModel, PageParts, assemble_loop
from tenantry_runtime.engine.config import ModelSource, NodeConfig
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.pool.messages import Failed, NodeMessage, SequenceTokens, Step, Submit
from tenantry_runtime.pool.page_port import PagePort

MODEL = "fake-model"
STOP = 0
"""The only stop token of a submit that names none."""


def a_submit(
    request_id: str = "r",
    *,
    prompt: Sequence[int] = (5, 6, 7),
    max_tokens: int = 8,
    tenant: str = "acme",
    model: str = MODEL,
    sampling: Sampling | None = None,
    stop_token_ids: tuple[int, ...] = (STOP,),
    share: Share | None = None,
    may_wait: bool = True,
    max_waiting: int | None = None,
    is_background: bool = False,
) -> Submit:
    return Submit(
        request_id=request_id,
        tenant=tenant,
        model=model,
        token_ids=list(prompt),
        sampling=sampling or Sampling(seed=1, temperature=0.0),
        stop_token_ids=stop_token_ids,
        max_tokens=max_tokens,
        share=share or Share(),
        may_wait=may_wait,
        max_waiting=max_waiting,
        is_background=is_background,
    )


def an_engine(
    *,
    models: Iterable[str] = (MODEL,),
    decoder: FakeDecoder | None = None,
    num_pages: int = 16,
    max_batch: int = 8,
    max_waiting: int = 64,
    chunk_tokens: int = 32,
    clock_s: Callable[[], float] = time.time,
    parts: PageParts | None = None,
    check_pages: bool = True,
    max_incidents: int = 16,
    phases: tuple[Phase, ...] = ("prefill", "decode"),
    separate_pools: bool = False,
    handoff_bytes: int = 4 << 20,
    port: PagePort | None = None,
    directory: str = "unused",
    runs_ahead: bool = False,
) -> EngineLoop:
    """`directory`: of a checkpoint whose vocabulary the fake has, where grammars need it.

    `runs_ahead`: its steps go the way of those on a device, and are planned as there.
    """
    config = NodeConfig(
        models=tuple(
            ModelSource(id=model, directory=directory, phases=phases, separate_pools=separate_pools)
            for model in models
        ),
        # the fake's pages are words, and leave as they are
        cache="float32",
        handoff_bytes=handoff_bytes,
        num_pages=num_pages,
        max_batch=max_batch,
        max_waiting=max_waiting,
        chunk_tokens=chunk_tokens,
        check_pages=check_pages,
        max_incidents=max_incidents,
    )
    decoder = decoder or FakeDecoder()
    loaded = [
        _loaded(source, decoder, num_pages, phases, runs_ahead)
        for source in config.models
        for phases in config.pools_of(source)
    ]
    return assemble_loop(config, loaded, clock_s=clock_s, parts=parts, port=port)


def expected_answer(submit: Submit, vocab_size: int = FakeConfig().vocab_size) -> list[int]:
    """Return what the fake model says to this request alone, computed without the engine."""
    token_ids = list(submit.token_ids)
    answer: list[int] = []
    while len(answer) < submit.max_tokens:
        logits = adjusted(
            next_logits(token_ids, vocab_size), submit.sampling, submit.token_ids, answer
        )
        token_id = draw(logits, submit.sampling, len(token_ids))
        token_ids.append(token_id)
        answer.append(token_id)
        if token_id in submit.stop_token_ids:
            break
    return answer


def assert_likelihoods(
    told: Sequence[ChosenLogprob],
    submit: Submit,
    answer: Sequence[int],
    vocab_size: int = FakeConfig().vocab_size,
) -> None:
    """Check what was told with an answer's tokens against the fake model's own distribution."""
    num_top = submit.sampling.top_logprobs
    if num_top is None:
        assert not told
        return
    token_ids = list(submit.token_ids)
    for token_id, entry in zip(answer, told, strict=True):
        logits = next_logits(token_ids, vocab_size)
        expected = logprobs(logits)
        order = sorted(range(vocab_size), key=lambda token: (-logits[token], token))
        assert entry.chosen.token_id == token_id
        assert abs(entry.chosen.logprob - expected[token_id]) < 1e-6
        assert [each.token_id for each in entry.top] == order[:num_top]
        token_ids.append(token_id)


class Transcript:
    """Everything that an engine has said, by request."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = defaultdict(list)
        self.logprobs: dict[str, list[ChosenLogprob]] = defaultdict(list)
        self.finished: dict[str, SequenceTokens] = {}
        self.failed: dict[str, Failed] = {}

    def read(self, messages: Iterable[NodeMessage]) -> None:
        for message in messages:
            match message:
                case Step(sequences=sequences):
                    for sequence in sequences:
                        self._read_tokens(sequence)
                case Failed():
                    assert message.request_id not in self.finished
                    self.failed[message.request_id] = message

    def finish_reason(self, request_id: str) -> FinishReason | None:
        return self.finished[request_id].finish

    def _read_tokens(self, sequence: SequenceTokens) -> None:
        request_id = sequence.request_id
        assert request_id not in self.finished, "tokens after the last ones"
        assert request_id not in self.failed, "tokens after a failure"
        self.tokens[request_id].extend(sequence.token_ids)
        self.logprobs[request_id].extend(sequence.logprobs)
        if sequence.finish is not None:
            self.finished[request_id] = sequence


def run_to_end(
    loop: EngineLoop, transcript: Transcript | None = None, max_turns: int = 5000
) -> Transcript:
    """Turn until the loop is idle."""
    transcript = transcript or Transcript()
    for _ in range(max_turns):
        if loop.is_idle:
            return transcript
        transcript.read(loop.turn())
    raise AssertionError(f"still at work after {max_turns} turns")


def assert_nothing_is_held(loop: EngineLoop, num_pages: int = 16) -> None:
    statistics = loop.statistics()
    assert loop.audit() == []
    assert set(statistics.num_free_pages.values()) == {num_pages}
    assert (statistics.num_running, statistics.num_waiting) == (0, 0)


def _loaded(
    source: ModelSource,
    decoder: FakeDecoder,
    num_pages: int,
    phases: tuple[Phase, ...],
    runs_ahead: bool,
) -> LoadedModel[FakeCache]:
    cache = FakeCache.allocate(decoder.config, num_pages=num_pages, dtype=torch.float32)
    return LoadedModel(
        source=source,
        decoder=decoder,
        revision=decoder.revision,
        cache=cache,
        num_pages=num_pages,
        num_appends=1,
        phases=phases,
        wire=partial(WirePages, cache.as_pages()),
        reads_on_device=runs_ahead,
        runs_ahead=runs_ahead,
    )
