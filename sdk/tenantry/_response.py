"""From bytes to results and errors; no I/O, so that both clients share it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import TypeVar, cast

import httpx
import msgspec

from ._request import MODELS_PER_PAGE, Call
from ._results import Model
from .errors import ConnectionFailed, InvalidResponse, RequestTimeout, TenantryError, error_class

RecordT = TypeVar("RecordT")

# the server's own name first, then those that Cloudflare's responses carry
REQUEST_ID_HEADERS = ("x-request-id", "cf-ai-req-id", "cf-ray")

# of a body that is not of this API, enough to recognize whose it is
EXCERPT_CHARS = 200


class ErrorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One of an answer's `errors`."""

    message: str = ""
    # OpenAI's dialect has words here
    code: int | str | None = None


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What every answer is wrapped in, and what an error in a stream looks like."""

    success: bool | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    errors: list[ErrorEntry] | None = None
    error: ErrorEntry | None = None

    @property
    def entries(self) -> list[ErrorEntry]:
        return self.errors or ([self.error] if self.error else [])


class ResultInfo(msgspec.Struct, frozen=True, kw_only=True):
    total_count: int | None = None


class ModelPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the models on offer."""

    result: list[Model]
    result_info: ResultInfo = ResultInfo()

    def is_last(self, num_models: int) -> bool:
        """Whether `num_models` are all, those of this page included."""
        if self.result_info.total_count is None:
            return len(self.result) < MODELS_PER_PAGE
        return not self.result or num_models >= self.result_info.total_count


_envelopes = msgspec.json.Decoder(Envelope)


def is_expected(response: httpx.Response, call: Call) -> bool:
    """Whether this is an answer to the call rather than an error."""
    media_type = response.headers.get("content-type", "").partition(";")[0].strip()
    return response.is_success and (not call.is_stream or media_type == "text/event-stream")


def parse_result(response: httpx.Response, type: type[RecordT]) -> RecordT:
    """Take the envelope off a whole answer."""
    envelope = _successful(response)
    return parse_record(envelope.result, type, request_id=request_id(response.headers))


def parse_page(response: httpx.Response) -> ModelPage:
    """Read one page of models, of which the envelope is a part."""
    _successful(response)
    return parse_record(response.content, ModelPage, request_id=request_id(response.headers))


def parse_record(
    text: bytes | msgspec.Raw, type: type[RecordT], *, request_id: str | None
) -> RecordT:
    """Read one JSON object; a null stands for the field's default."""
    try:
        return msgspec.convert(_without_nulls(msgspec.json.decode(text)), type)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidResponse(
            f"not an object that this SDK knows: {error}", request_id=request_id
        ) from error


def read_envelope(text: bytes) -> Envelope | None:
    """Read an envelope; None for anything else."""
    try:
        return _envelopes.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def answer_error(
    response: httpx.Response, *, now: Callable[[], float] = time.time
) -> TenantryError:
    """Make the error of an answer that is not a success; its body has been read."""
    envelope = read_envelope(response.content)
    entries = envelope.entries if envelope else []
    if not entries:
        message = f"HTTP {response.status_code}: {_excerpt(response)}"
        if response.is_success:
            return InvalidResponse(
                f"not an answer of this API: {message}",
                status=response.status_code,
                request_id=request_id(response.headers),
            )
        entries = [ErrorEntry(message=message)]
    return make_error(
        entries,
        status=response.status_code,
        request_id=request_id(response.headers),
        retry_after=retry_after_s(response.headers, now=now),
    )


def make_error(
    entries: list[ErrorEntry],
    *,
    status: int | None,
    request_id: str | None,
    retry_after: float | None = None,
) -> TenantryError:
    """Make the typed error of the first entry that has a code; the message is of all."""
    codes = [entry.code for entry in entries if isinstance(entry.code, int)]
    code = codes[0] if codes else None
    return error_class(status, code)(
        "; ".join(entry.message for entry in entries),
        status=status,
        code=code,
        request_id=request_id,
        retry_after=retry_after,
    )


def transport_error(error: httpx.RequestError, base_url: str) -> TenantryError:
    """Name what kept a request from being answered."""
    reason = str(error) or type(error).__name__
    match error:
        case httpx.ConnectTimeout() | httpx.ConnectError():
            return ConnectionFailed(f"cannot reach {base_url} ({reason}); is the server running?")
        case httpx.TimeoutException():
            return RequestTimeout(f"{base_url} was silent for longer than the timeout ({reason})")
        case httpx.DecodingError():
            return InvalidResponse(f"{base_url} sent a body that cannot be decoded: {reason}")
        case _:
            return ConnectionFailed(f"lost the connection to {base_url}: {reason}")


def request_id(headers: Mapping[str, str]) -> str | None:
    """What the server calls the request."""
    return next((headers[name] for name in REQUEST_ID_HEADERS if name in headers), None)


def retry_after_s(headers: Mapping[str, str], *, now: Callable[[], float]) -> float | None:
    """Seconds until another try is welcome: `retry-after-ms`, else `Retry-After` in either form."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now())
    except ValueError:
        return None


def _successful(response: httpx.Response) -> Envelope:
    envelope = read_envelope(response.content)
    if envelope is None or envelope.success is False:
        raise answer_error(response)
    return envelope


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if isfinite(number) and number >= 0 else None


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {key: _without_nulls(each) for key, each in fields.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in cast("list[object]", value)]
    return value


def _excerpt(response: httpx.Response) -> str:
    text = " ".join(response.text.split())
    return repr(text[:EXCERPT_CHARS]) if text else "an empty body"
