"""Workers AI's dialect, `/ai/run/{model}`: the parameters of chat models, and OpenAI's answers.

| parameters | |
|---|---|
| `prompt`, `messages` | one of them |
| `tools`, `tool_choice` (`auto`, `none`) | |
| `temperature`, `top_p`, `top_k`, `min_p`, `seed`, `stop` | |
| `max_tokens`, `max_completion_tokens` | the same; default: the rest of the context |
| `chat_template_kwargs`, `reasoning_effort` | an effort of null is `none` |
| `stream`, `stream_options` | |
| `prompt_cache_key` | the session, when no header names one |
| `model` | another name of the model in the path |
| `options`, `user`, `store`, `metadata`, `service_tier`, `safety_identifier` | accepted; they cannot change an answer |
| those of `NEUTRAL` | accepted with the value that asks for what happens anyway |

Everything else is refused by name. So is a value out of range; nothing is clamped.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tenantry_runtime.catalog import TokenPrices
from tenantry_runtime.core import GenerateRequest, RenderOptions, Sampling, Tool
from tenantry_runtime.errors import InvalidInput, TenantryError

from . import envelope
from .chat_input import Input, MessageInput, ToolInput, conversation, offered_tools
from .chat_output import ChatPrinter
from .dialect import SESSION_HEADER, Target
from .errors import answer

SEED_BITS = 63
MAX_STOP_STRINGS = 4
MAX_SESSION_CHARS = 256

# Any: the values are whatever JSON has
NEUTRAL: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "n": (1,),
        "frequency_penalty": (0,),
        "presence_penalty": (0,),
        "logit_bias": ({},),
        "logprobs": (False,),
        "parallel_tool_calls": (True,),
        "response_format": ({"type": "text"},),
        "modalities": (["text"],),
    }
)
"""Parameters without an effect yet, and the values that ask for none."""

Fraction: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]
StopString: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]


class StreamOptions(Input, frozen=True, kw_only=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class TemplateOptions(Input, frozen=True, kw_only=True):
    thinking: bool | None = None
    enable_thinking: bool | None = None
    preserve_thinking: bool | None = None
    clear_thinking: bool | None = None


class RunOptions(Input, frozen=True, kw_only=True):
    rejectIfBusy: bool | None = None


class RunInput(Input, frozen=True, kw_only=True):
    """The body. A null is the same as no field, except where it says otherwise."""

    model: str | None = None
    prompt: Annotated[str, Meta(min_length=1)] | None = None
    messages: list[MessageInput] | None = None
    tools: list[ToolInput] | None = None
    # Any: read by hand, for a message that says what is supported
    tool_choice: Any = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    top_k: Count | None = None
    min_p: Fraction | None = None
    seed: Annotated[int, Meta(ge=0, le=(1 << SEED_BITS) - 1)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=MAX_STOP_STRINGS)] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    chat_template_kwargs: TemplateOptions | None = None
    reasoning_effort: str | UnsetType | None = UNSET
    """Null is `none`, as Cloudflare's own provider for the AI SDK uses it."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    prompt_cache_key: Annotated[str, Meta(min_length=1)] | None = None
    options: RunOptions | None = None
    user: str | None = None
    store: bool | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    n: Any = None
    frequency_penalty: Any = None
    presence_penalty: Any = None
    logit_bias: Any = None
    logprobs: Any = None
    parallel_tool_calls: Any = None
    response_format: Any = None
    modalities: Any = None


_decoder = msgspec.json.Decoder(RunInput)


def _draw_seed() -> int:
    return secrets.randbits(SEED_BITS)


class WorkersAI:
    """The dialect; stateless."""

    def __init__(self, *, draw_seed: Callable[[], int] = _draw_seed) -> None:
        self._draw_seed = draw_seed

    def parse(self, body: bytes, target: Target, *, session: str | None) -> GenerateRequest:
        """Read a request, as `Dialect` says."""
        asked = _decode(body)
        _check_neutral(asked)
        if asked.model is not None and asked.model not in target.entry.names:
            raise InvalidInput("model", f"{asked.model!r} is not the model of the path")
        if (asked.prompt is None) == (asked.messages is None):
            raise InvalidInput("", "exactly one of 'prompt' and 'messages' is required")
        stream_options = asked.stream_options or StreamOptions()
        if stream_options.include_obfuscation:
            raise InvalidInput("stream_options.include_obfuscation", "is not supported")
        return GenerateRequest(
            model=target.entry.id,
            sampling=self._sampling(asked, target),
            messages=() if asked.messages is None else conversation(asked.messages),
            prompt=asked.prompt,
            tools=_tools(asked, target),
            options=_render_options(asked),
            stream=bool(asked.stream),
            include_usage=stream_options.include_usage is not False,
            session=_session(session, asked.prompt_cache_key),
            may_wait=not (asked.options is not None and asked.options.rejectIfBusy),
        )

    def printer(
        self,
        request: GenerateRequest,
        *,
        response_id: str,
        created_s: int,
        prices: TokenPrices | None = None,
    ) -> ChatPrinter:
        """Make the printer of one answer, as `Dialect` says."""
        return ChatPrinter(request, response_id=response_id, created_s=created_s, prices=prices)

    def error(self, error: TenantryError) -> tuple[int, bytes]:
        """Return status and body, as `Dialect` says."""
        return answer(error).status, envelope.failure(error)

    def _sampling(self, asked: RunInput, target: Target) -> Sampling:
        temperature, top_p = asked.temperature, asked.top_p
        return Sampling(
            seed=self._draw_seed() if asked.seed is None else asked.seed,
            temperature=target.defaults.temperature if temperature is None else temperature,
            top_p=target.defaults.top_p if top_p is None else top_p,
            top_k=asked.top_k,
            min_p=asked.min_p or 0.0,
            max_tokens=_max_tokens(asked),
            stop=(asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ()),
        )


def _decode(body: bytes) -> RunInput:
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error
    except msgspec.DecodeError as error:
        raise InvalidInput("", f"the body is no valid JSON: {error}") from error
    except RecursionError as error:
        raise InvalidInput("", "the body is nested too deeply") from error


_VERDICTS = {
    "Object contains unknown field `": "is not supported",
    "Object missing required field `": "is required",
}
MAX_SHOWN_NAME_CHARS = 100


def _invalid(text: str) -> InvalidInput:
    """Take msgspec's text apart: "Expected `int`, got `str` - at `$.messages[0].name`".

    No regular expression: parts of the text are the client's, and may be megabytes long.
    """
    problem, mark, where = text.rpartition(" - at `")
    if not mark:
        problem, where = text, ""
    field = where.removesuffix("`").removeprefix("key in ").removeprefix("$").removeprefix(".")
    for beginning, verdict in _VERDICTS.items():
        if problem.startswith(beginning):
            name = problem.removeprefix(beginning).removesuffix("`")[:MAX_SHOWN_NAME_CHARS]
            return InvalidInput(".".join(filter(None, (field, name))), verdict)
    return InvalidInput(field, problem[:1].lower() + problem[1:].replace("`", ""))


def _check_neutral(asked: RunInput) -> None:
    for name, accepted in NEUTRAL.items():
        value = getattr(asked, name)
        # by type too: 1 and True are equal
        if value is not None and not any(
            value == other and isinstance(value, bool) == isinstance(other, bool)
            for other in accepted
        ):
            raise InvalidInput(name, f"only {_json(accepted[0])} is supported")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _tools(asked: RunInput, target: Target) -> tuple[Tool, ...]:
    tools = offered_tools(asked.tools or ())
    if tools and "function_calling" not in target.entry.capabilities:
        raise InvalidInput("tools", "the model calls no functions")
    match asked.tool_choice:
        case None | "auto":
            return tools
        case "none":
            # a model that is told of no tool calls none
            return ()
        case _:
            raise InvalidInput("tool_choice", "only 'auto' and 'none' are supported")


def _max_tokens(asked: RunInput) -> int | None:
    if asked.max_completion_tokens is None:
        return asked.max_tokens
    if asked.max_tokens not in (None, asked.max_completion_tokens):
        raise InvalidInput("max_completion_tokens", "differs from 'max_tokens'")
    return asked.max_completion_tokens


def _render_options(asked: RunInput) -> RenderOptions:
    options = asked.chat_template_kwargs or TemplateOptions()
    field = "chat_template_kwargs"
    thinking = options.thinking
    if thinking is None:
        thinking = options.enable_thinking
    elif options.enable_thinking not in (None, thinking):
        raise InvalidInput(f"{field}.enable_thinking", "contradicts 'thinking'")
    preserve = options.preserve_thinking
    if preserve is None:
        preserve = None if options.clear_thinking is None else not options.clear_thinking
    elif options.clear_thinking is preserve:
        raise InvalidInput(f"{field}.clear_thinking", "contradicts 'preserve_thinking'")
    effort = asked.reasoning_effort
    if effort is UNSET:
        effort = None
    elif effort is None:
        effort = "none"
    return RenderOptions(thinking=thinking, preserve_thinking=preserve, reasoning_effort=effort)


def _session(header: str | None, cache_key: str | None) -> str | None:
    if header is None and cache_key is None:
        return None
    field, session = ("prompt_cache_key", cache_key) if header is None else (SESSION_HEADER, header)
    assert session is not None
    if len(session) > MAX_SESSION_CHARS:
        raise InvalidInput(field, f"must be at most {MAX_SESSION_CHARS} characters long")
    if not session or not session.isprintable():
        raise InvalidInput(field, "must be printable characters")
    return session
