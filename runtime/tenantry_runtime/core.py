"""The nouns that edge, text and engine share: what is asked, what is answered, what it cost.

A dialect parses bytes into a `GenerateRequest` and prints `Event`s; the text layer turns its
conversation into token ids and token ids into events; the engine sees ids and `Sampling` only.
Wire types of the edge-node protocol build on these (`pool/messages.py`). No torch, no I/O.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, NewType, TypeAlias

import msgspec
from msgspec import Meta

TenantId = NewType("TenantId", str)
RequestId = NewType("RequestId", str)

Phase: TypeAlias = Literal["prefill", "decode"]
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]

PAGE_TOKENS = 64
"""Tokens of cache in one page."""


Fraction: TypeAlias = Annotated[float, Meta(ge=0, le=1)]


class Share(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What a tenant has of every pool, as its plan says."""

    weight: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    """Service that it gets for each unit of service of a tenant of weight 1, while both have work."""
    guaranteed: Fraction = 0.0
    """Of the pool's pages, and of the places in its batch: there when the tenant asks, whoever has to
    give them back for it."""
    ceiling: Fraction = 1.0
    """Of the pool's pages: never more, even if they are free."""

    def most_pages(self, num_pages: int) -> int:
        """Return how many of a pool's pages the tenant may have: one at least."""
        # so that 0.29 of 100 pages are 29, whatever 0.29 is in binary
        return max(int(self.ceiling * num_pages + 1e-9), 1)


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    """The model ended its turn, or a stop string of the request appeared."""
    LENGTH = "length"
    """`max_tokens` or the model's context was reached; beats `tool_calls`."""
    TOOL_CALLS = "tool_calls"
    """The model ended its turn with at least one complete tool call."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is chosen. Noise is a function of (`seed`, position) alone."""

    seed: int
    """0 to 2**63 - 1; the dialect draws one when the request names none."""
    temperature: float = 1.0
    """0 chooses the most likely token."""
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0
    max_tokens: int | None = None
    """None: as many as the context has room for."""
    stop: tuple[str, ...] = ()
    """Strings that end the answer and are not part of it; the edge looks for them, in content only."""
    frequency_penalty: float = 0.0
    """Subtracted from a token's logit once for each time that the answer has it."""
    presence_penalty: float = 0.0
    """Subtracted once if the answer has the token."""
    repetition_penalty: float = 1.0
    """Divides a positive logit, multiplies a negative one, of tokens that prompt or answer have."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Added to the logits of tokens, by id."""
    top_logprobs: int | None = None
    """How many alternatives to tell the log probability of, beside the token's own; None: tell none."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call in an assistant's message."""

    id: str
    name: str
    arguments: str
    """JSON text of an object."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a conversation, the same for every dialect."""

    role: Role
    content: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] = {}
    """A JSON schema of the arguments object."""


class RenderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What of a request reaches the chat template besides messages and tools. None: the model's default."""

    thinking: bool | None = None
    preserve_thinking: bool | None = None
    """Keep the reasoning of every past turn (`clear_thinking: false` in GLM's words)."""
    reasoning_effort: str | None = None


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the model may call functions, and which."""

    mode: Literal["auto", "none", "required"] = "auto"
    name: str | None = None
    """The only one that it may call; with `required`."""


class TextFormat(msgspec.Struct, frozen=True, tag="text"):
    """Content is any text."""


class JsonFormat(msgspec.Struct, frozen=True, kw_only=True, tag="json"):
    """Content is one JSON value."""

    schema: dict[str, Any] | None = None
    """That it fits; None: any object."""
    name: str = ""
    strict: bool = True


ResponseFormat: TypeAlias = TextFormat | JsonFormat


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request for text, whatever the dialect."""

    model: str
    """Canonical id in the catalog, aliases already resolved."""
    sampling: Sampling
    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    """Set instead of `messages`: rendered as a conversation of one user message."""
    tools: tuple[Tool, ...] = ()
    options: RenderOptions = RenderOptions()
    stream: bool = False
    include_usage: bool = True
    session: str | None = None
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    """False: one call at most."""
    response_format: ResponseFormat = TextFormat()
    num_choices: int = 1
    """Answers, independent of each other."""
    echo: bool = False
    """The answer's text begins with the prompt's."""
    may_wait: bool = True
    """False: an answer that has to wait for its turn is none (`options.rejectIfBusy`)."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one request. `prompt` includes `cached`, `completion` includes `reasoning`."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class ReasoningDelta(msgspec.Struct, frozen=True, tag=True):
    """More of the model's thinking."""

    text: str


class ContentDelta(msgspec.Struct, frozen=True, tag=True):
    """More of the answer."""

    text: str


class ToolCallStart(msgspec.Struct, frozen=True, tag=True):
    """A call begins; the one before it, if any, is complete."""

    index: int
    id: str
    name: str


class ToolCallArguments(msgspec.Struct, frozen=True, tag=True):
    """More JSON text of the arguments of call `index`; the pieces joined are one JSON object."""

    index: int
    text: str


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """One token, and how likely it was."""

    token_id: int
    logprob: float
    """Natural logarithm of its probability."""


class ChosenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """The token that was drawn, and the likeliest beside it."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...] = ()
    """The likeliest first; the one that was drawn may be among them."""


class LogprobsDelta(msgspec.Struct, frozen=True, tag=True):
    """How likely the next tokens were, those of reasoning and of tool calls too."""

    entries: tuple[ChosenLogprob, ...]


class Finish(msgspec.Struct, frozen=True, tag=True):
    """The answer is whole; nothing follows."""

    reason: FinishReason
    usage: Usage


OutputEvent: TypeAlias = ReasoningDelta | ContentDelta | ToolCallStart | ToolCallArguments
"""What the output machine makes of token ids."""

Event: TypeAlias = OutputEvent | LogprobsDelta | Finish
"""What a dialect prints."""
