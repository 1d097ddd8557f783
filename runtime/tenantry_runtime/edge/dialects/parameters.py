"""What the bodies of all dialects have in common, and how a body becomes one of them.

A field that a body's type does not know is refused by name. So is a value out of range; nothing is
clamped. Null is the same as no field.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from tenantry_runtime.core import Sampling
from tenantry_runtime.errors import InvalidInput

from .dialect import SESSION_HEADER, Target

SEED_BITS = 63
MAX_STOP_STRINGS = 4
MAX_SESSION_CHARS = 256
MAX_SHOWN_NAME_CHARS = 100

MAX_BIASED_TOKENS = 1024
MAX_TOP_LOGPROBS = 20
MAX_CHOICES = 8

Fraction: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Penalty: TypeAlias = Annotated[float, Meta(ge=-2, le=2)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]
NumChoices: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
NumTopLogprobs: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)]
StopString: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
TokenKey: TypeAlias = Annotated[str, Meta(pattern="^[0-9]{1,9}$")]
Bias: TypeAlias = Annotated[float, Meta(ge=-100, le=100)]


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all that clients send: a field that we do not know is an error."""


class StreamOptions(Input, frozen=True, kw_only=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class RunOptions(Input, frozen=True, kw_only=True):
    rejectIfBusy: bool | None = None


class ServiceInput(Input, frozen=True, kw_only=True):
    """Of every dialect. The fields after `options` are accepted, and cannot change an answer."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    prompt_cache_key: Annotated[str, Meta(min_length=1)] | None = None
    options: RunOptions | None = None
    user: str | None = None
    store: bool | None = None
    # Any: whatever JSON has, unread
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_retention: str | None = None


class SamplingInput(ServiceInput, frozen=True, kw_only=True):
    """Of the dialects that speak of tokens."""

    top_k: Count | None = None
    min_p: Fraction | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None = None
    logit_bias: Annotated[dict[TokenKey, Bias], Meta(max_length=MAX_BIASED_TOKENS)] | None = None
    n: NumChoices | None = None
    seed: Annotated[int, Meta(ge=0, le=(1 << SEED_BITS) - 1)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=MAX_STOP_STRINGS)] | None = None


AnyBody = TypeVar("AnyBody", bound=msgspec.Struct)


def draw_seed() -> int:
    """Make the seed of a request that names none."""
    return secrets.randbits(SEED_BITS)


def sampling(
    asked: SamplingInput,
    target: Target,
    *,
    seed: int,
    max_tokens: int | None,
    top_logprobs: int | None,
) -> Sampling:
    """Fill in the model's defaults."""
    temperature, top_p, penalty = asked.temperature, asked.top_p, asked.repetition_penalty
    return Sampling(
        seed=seed if asked.seed is None else asked.seed,
        temperature=target.defaults.temperature if temperature is None else temperature,
        top_p=target.defaults.top_p if top_p is None else top_p,
        top_k=asked.top_k,
        min_p=asked.min_p or 0.0,
        max_tokens=max_tokens,
        stop=(asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ()),
        frequency_penalty=asked.frequency_penalty or 0.0,
        presence_penalty=asked.presence_penalty or 0.0,
        repetition_penalty=1.0 if penalty is None else penalty,
        logit_bias=_logit_bias(asked.logit_bias or {}, target.vocab_size),
        top_logprobs=top_logprobs,
    )


def include_usage(asked: ServiceInput, *, default: bool) -> bool:
    """Say whether a stream carries usage; `default` where the request does not say."""
    options = asked.stream_options or StreamOptions()
    if options.include_obfuscation:
        raise InvalidInput("stream_options.include_obfuscation", "is not supported")
    return default if options.include_usage is None else options.include_usage


def may_wait(asked: ServiceInput) -> bool:
    """Say whether the request takes its place in a queue."""
    return not (asked.options is not None and asked.options.rejectIfBusy)


def session(header: str | None, asked: ServiceInput) -> str | None:
    """Return the session: what the header says beats the cache key."""
    cache_key = asked.prompt_cache_key
    if header is None and cache_key is None:
        return None
    field, named = ("prompt_cache_key", cache_key) if header is None else (SESSION_HEADER, header)
    assert named is not None
    if len(named) > MAX_SESSION_CHARS:
        raise InvalidInput(field, f"must be at most {MAX_SESSION_CHARS} characters long")
    if not named or not named.isprintable():
        raise InvalidInput(field, "must be printable characters")
    return named


class _Named(msgspec.Struct):
    model: Annotated[str, Meta(min_length=1)]


_named_decoder = msgspec.json.Decoder(_Named)


def model_of(body: bytes) -> str:
    """Read the model alone that a body names."""
    return decode(_named_decoder, body).model


def decode(decoder: msgspec.json.Decoder[AnyBody], body: bytes) -> AnyBody:
    """Read a body; raise `InvalidInput`, which names the field."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from error
    except msgspec.DecodeError as error:
        raise InvalidInput("", f"the body is no valid JSON: {error}") from error
    except RecursionError as error:
        raise InvalidInput("", "the body is nested too deeply") from error


_VERDICTS = {
    "Object contains unknown field `": "is not supported",
    "Object missing required field `": "is required",
}


def invalid(text: str, *, within: str = "") -> InvalidInput:
    """Take msgspec's text apart: "Expected `int`, got `str` - at `$.messages[0].name`".

    No regular expression: parts of the text are the client's, and may be megabytes long.
    """
    problem, mark, where = text.rpartition(" - at `")
    if not mark:
        problem, where = text, ""
    field = where.removesuffix("`").removeprefix("key` in `").removeprefix("$").removeprefix(".")
    field = ".".join(filter(None, (within, field)))
    for beginning, verdict in _VERDICTS.items():
        if problem.startswith(beginning):
            name = problem.removeprefix(beginning).removesuffix("`")[:MAX_SHOWN_NAME_CHARS]
            return InvalidInput(".".join(filter(None, (field, name))), verdict)
    return InvalidInput(field, problem[:1].lower() + problem[1:].replace("`", ""))


def _logit_bias(bias: dict[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    read: dict[int, float] = {}
    for key, value in bias.items():
        token_id = int(key)
        if token_id >= vocab_size:
            raise InvalidInput(f"logit_bias.{key}", f"the model's tokens are 0 to {vocab_size - 1}")
        if token_id in read:
            raise InvalidInput(f"logit_bias.{key}", "names a token twice")
        read[token_id] = value
    return tuple(read.items())
