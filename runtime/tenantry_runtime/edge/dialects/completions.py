"""OpenAI's older API, `/v1/completions`, for text without a conversation.

The models here are chat models, so a prompt is served as the one message of a user, as `prompt` is
in Workers AI's dialect, and without thinking: the API has no place for it. Where a model thinks all
the same, its reasoning is counted in the usage and not printed. With `echo` a text begins with the
prompt, as it was sent. `suffix` is refused: the models
cannot write what stands before a text. So is `best_of`, except where it asks for what `n` asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from tenantry_runtime.core import (
    ContentDelta,
    Event,
    Finish,
    FinishReason,
    GenerateRequest,
    LogprobsDelta,
    RenderOptions,
)
from tenantry_runtime.errors import InvalidInput, TenantryError

from . import openai_errors, parameters
from .dialect import Target, TokenBytes
from .logprobs_output import LEAST, token_text
from .openai_dialect import OpenAIDialect
from .parameters import Count, NumChoices, SamplingInput
from .sse import DONE, sse
from .usage_output import UsageOutput, usage_output

Prompt: TypeAlias = Annotated[str, Meta(min_length=1)]
MAX_LOGPROBS = 5


class CompletionsInput(SamplingInput, frozen=True, kw_only=True):
    """The body of `/completions`."""

    model: str
    prompt: Prompt | Annotated[list[Prompt], Meta(min_length=1, max_length=1)]
    """A list has one: several prompts are several requests."""
    max_tokens: Count | None = None
    logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    best_of: NumChoices | None = None
    echo: bool | None = None
    suffix: str | None = None


class CompletionLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]
    """Where each token begins, counted in characters of the tokens' own texts."""


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReason | None = None


class TextCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer, or a piece of one."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: UsageOutput | None = None
    system_fingerprint: None = None


_decoder = msgspec.json.Decoder(CompletionsInput)


class Completions(OpenAIDialect):
    """The dialect; stateless."""

    id_prefix = "cmpl-"

    def parse(self, body: bytes, target: Target, *, session: str | None) -> GenerateRequest:
        """Read a request, as `Dialect` says."""
        asked = parameters.decode(_decoder, body)
        if asked.suffix:
            raise InvalidInput("suffix", "is not supported: the models write what follows a text")
        if asked.echo and asked.logprobs is not None:
            raise InvalidInput("logprobs", "is not supported with 'echo'")
        num_choices = asked.n or 1
        if asked.best_of not in (None, num_choices):
            raise InvalidInput("best_of", "is not supported, unless it is 'n'")
        return GenerateRequest(
            model=target.entry.id,
            sampling=parameters.sampling(
                asked,
                target,
                seed=self._draw_seed(),
                max_tokens=asked.max_tokens,
                top_logprobs=asked.logprobs,
            ),
            prompt=asked.prompt if isinstance(asked.prompt, str) else asked.prompt[0],
            options=RenderOptions(thinking=False),
            num_choices=num_choices,
            stream=bool(asked.stream),
            include_usage=parameters.include_usage(asked, default=False),
            session=parameters.session(session, asked),
            may_wait=parameters.may_wait(asked),
            echo=bool(asked.echo),
        )

    def printer(
        self, request: GenerateRequest, target: Target, *, response_id: str, created_s: int
    ) -> CompletionsPrinter:
        """Make the printer of one answer, as `Dialect` says."""
        return CompletionsPrinter(
            request, response_id=response_id, created_s=created_s, token_bytes=target.token_bytes
        )


class CompletionsPrinter:
    """Prints the answers to one request. A `Printer`."""

    def __init__(
        self,
        request: GenerateRequest,
        *,
        response_id: str,
        created_s: int,
        token_bytes: TokenBytes,
    ) -> None:
        self.response_id = response_id
        self._created_s = created_s
        self._model = request.model
        self._token_bytes = token_bytes
        self._include_usage = request.include_usage
        self._has_logprobs = request.sampling.top_logprobs is not None
        self._num_running = request.num_choices
        self._echoed = (request.prompt or "") if request.echo else ""
        self._offsets = [0] * request.num_choices

    def opening(self) -> bytes:
        if not self._echoed:
            return b""
        choices = range(self._num_running)
        return b"".join(
            self._piece(CompletionChoice(index=index, text=self._echoed)) for index in choices
        )

    def event(self, event: Event, choice: int = 0) -> bytes:
        match event:
            case ContentDelta(text):
                return self._piece(CompletionChoice(index=choice, text=text))
            case LogprobsDelta():
                logprobs = self._logprobs([event], choice)
                return self._piece(CompletionChoice(index=choice, text="", logprobs=logprobs))
            case Finish():
                return self._end(event, choice)
            case _:
                return b""

    def broken(self, error: TenantryError) -> bytes:
        return sse(openai_errors.describe(error))

    def result(self, choices: Sequence[Sequence[Event]]) -> bytes:
        finish = choices[-1][-1]
        assert isinstance(finish, Finish)
        printed = [self._whole(events, index) for index, events in enumerate(choices)]
        return msgspec.json.encode(self._completion(printed, usage_output(finish.usage, None)))

    def _whole(self, events: Sequence[Event], index: int) -> CompletionChoice:
        finish = events[-1]
        assert isinstance(finish, Finish)
        return CompletionChoice(
            index=index,
            text=self._echoed
            + "".join(event.text for event in events if isinstance(event, ContentDelta)),
            logprobs=self._logprobs(events, index) if self._has_logprobs else None,
            finish_reason=finish.reason,
        )

    def _end(self, finish: Finish, choice: int) -> bytes:
        printed = self._piece(CompletionChoice(index=choice, text="", finish_reason=finish.reason))
        self._num_running -= 1
        if self._num_running:
            return printed
        if self._include_usage:
            printed += sse(self._completion([], usage_output(finish.usage, None)))
        return printed + DONE

    def _piece(self, choice: CompletionChoice) -> bytes:
        return sse(self._completion([choice]))

    def _completion(
        self, choices: list[CompletionChoice], usage: UsageOutput | None = None
    ) -> TextCompletion:
        return TextCompletion(
            id=self.response_id,
            created=self._created_s,
            model=self._model,
            choices=choices,
            usage=usage,
        )

    def _logprobs(self, events: Sequence[Event], choice: int) -> CompletionLogprobs:
        entries = [
            entry for event in events if isinstance(event, LogprobsDelta) for entry in event.entries
        ]
        tokens = [token_text(entry.chosen.token_id, self._token_bytes) for entry in entries]
        offsets: list[int] = []
        for token in tokens:
            offsets.append(self._offsets[choice])
            self._offsets[choice] += len(token)
        return CompletionLogprobs(
            tokens=tokens,
            token_logprobs=[max(entry.chosen.logprob, LEAST) for entry in entries],
            top_logprobs=[
                {
                    token_text(each.token_id, self._token_bytes): max(each.logprob, LEAST)
                    for each in reversed(entry.top)
                }
                for entry in entries
            ],
            text_offset=offsets,
        )
