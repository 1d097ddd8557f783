"""What is sent for each call; no I/O, so that both clients share it."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict
from urllib.parse import quote

import httpx
import msgspec

from ._config import Config
from ._schema import json_format
from ._tools import ToolResult, as_tool
from ._version import __version__
from .errors import CapacityExceeded, InvalidInput, TenantryError

# Any: the body is the model's own, and the server checks it
Inputs: TypeAlias = Mapping[str, Any]

# a server sends nothing of an unstreamed answer until all of it is there, which for a long answer
# of a reasoning model takes minutes; a lost connection is noticed at once, whatever this says
DEFAULT_TIMEOUT_S = 600.0
CONNECT_TIMEOUT_S = 5.0

MODELS_PER_PAGE = 100

# agents hold many streams open at a time
LIMITS = httpx.Limits(max_connections=1000, max_keepalive_connections=100)


class RunOptions(TypedDict, total=False):
    """What `run` takes beside the model and its inputs."""

    session: str | None
    """Requests that name the same are sent where the computation of their beginning is kept."""
    reject_if_busy: bool
    """Fail with `CapacityExceeded` at once, rather than wait in the server's queue."""
    timeout: float | None
    """In place of the client's, for this call."""
    extra_headers: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, before a client sends it."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes | None = None
    timeout: httpx.Timeout
    is_stream: bool = False
    rejects_busy: bool = False
    """The caller wants to know of a full queue rather than to wait."""
    may_repeat: bool = True
    """Whether a call that was lost on its way may be made again, though the first may have arrived."""

    def build(self) -> httpx.Request:
        return httpx.Request(
            self.method,
            self.url,
            headers=self.headers,
            content=self.content,
            extensions={"timeout": self.timeout.as_dict()},
        )

    def ends_with(self, error: TenantryError) -> bool:
        """Whether the caller is better served by the error than by another try."""
        if self.rejects_busy and isinstance(error, CapacityExceeded):
            return True
        if self.may_repeat or isinstance(
            error.__cause__, httpx.ConnectError | httpx.ConnectTimeout
        ):
            return False
        return error.status not in (429, 503)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Makes the calls of one account."""

    config: Config
    timeout: float = DEFAULT_TIMEOUT_S

    def __post_init__(self) -> None:
        _httpx_timeout(self.timeout)

    def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: bool | None,
        response_format: type | None = None,
        session: str | None = None,
        reject_if_busy: bool = False,
        timeout: float | None = None,
        extra_headers: Mapping[str, str] | None = None,
    ) -> Call:
        is_stream = _is_stream(inputs, stream)
        body = {**inputs, "stream": is_stream}
        if response_format is not None:
            if "response_format" in inputs:
                raise ValueError("response_format is given twice: as argument and in inputs")
            body["response_format"] = json_format(response_format)
        affinity: dict[str, str] = {}
        if session is not None and session.isascii() and session.isprintable():
            affinity["x-session-affinity"] = session
        elif session is not None:
            # no header holds it
            body["prompt_cache_key"] = session
        if reject_if_busy:
            body["options"] = {**inputs.get("options", {}), "rejectIfBusy": True}
        return Call(
            method="POST",
            url=self._run_url(model),
            headers=self._headers(
                {
                    "accept": "text/event-stream" if is_stream else "application/json",
                    "content-type": "application/json",
                    **affinity,
                },
                extra_headers,
            ),
            content=encode(body),
            timeout=self._timeout(timeout),
            is_stream=is_stream,
            rejects_busy=reject_if_busy,
        )

    def submit(self, model: str, requests: Sequence[Inputs]) -> Call:
        """Queue a batch; not made again when it may have arrived, lest all be computed twice."""
        return self._queued(model, {"requests": list(requests)}, may_repeat=False)

    def poll(self, model: str, batch_id: str) -> Call:
        return self._queued(model, {"request_id": batch_id}, may_repeat=True)

    def models(self, page: int) -> Call:
        query = f"page={page}&per_page={MODELS_PER_PAGE}"
        return Call(
            method="GET",
            url=f"{self.config.account_url}/ai/models/search?{query}",
            headers=self._headers({"accept": "application/json"}),
            timeout=self._timeout(),
        )

    def coverage(self) -> Call:
        return Call(
            method="GET",
            url=f"{self.config.account_url}/ai/coverage",
            headers=self._headers({"accept": "application/json"}),
            timeout=self._timeout(),
        )

    def _queued(self, model: str, body: Inputs, *, may_repeat: bool) -> Call:
        return Call(
            method="POST",
            url=f"{self._run_url(model)}?queueRequest=true",
            headers=self._headers(
                {"accept": "application/json", "content-type": "application/json"}
            ),
            content=encode(body),
            timeout=self._timeout(),
            may_repeat=may_repeat,
        )

    def _run_url(self, model: str) -> str:
        return f"{self.config.account_url}/ai/run/{_model_path(model)}"

    def _timeout(self, timeout_s: float | None = None) -> httpx.Timeout:
        return _httpx_timeout(self.timeout if timeout_s is None else timeout_s)

    def _headers(
        self, own: Mapping[str, str], extra: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        return {
            "authorization": f"Bearer {self.config.api_token}",
            "user-agent": f"tenantry/{__version__} python/{platform.python_version()}",
            **own,
            **{name.lower(): value for name, value in (extra or {}).items()},
        }


def encode(body: Inputs) -> bytes:
    """Write a body, in which tools, their results and types of answers may stand as they are."""
    return msgspec.json.encode(body, enc_hook=_encodable)


def _encodable(value: object) -> object:
    match value:
        case ToolResult():
            return value.message
        case type():
            return json_format(value)
        case _ if callable(value):
            return as_tool(value).declaration
        case _:
            raise TypeError(f"inputs hold a {type(value).__name__}, which is not JSON: {value!r}")


def _is_stream(inputs: Inputs, stream: bool | None) -> bool:
    if stream is None:
        return inputs.get("stream") is True
    if inputs.get("stream", stream) != stream:
        raise ValueError(f"stream is {stream!r}, but inputs['stream'] is {inputs['stream']!r}")
    return stream


def _model_path(model: str) -> str:
    # a model's name may come from a user of the caller; it must not lead to another path
    if any(segment in ("", ".", "..") for segment in model.split("/")):
        raise InvalidInput(f"model is {model!r}; it must be an id such as 'kimi-k2.6'")
    return quote(model, safe="/@:")


def _httpx_timeout(timeout_s: float) -> httpx.Timeout:
    if not timeout_s > 0:
        raise ValueError(f"timeout is {timeout_s!r}; it must be more than 0 seconds")
    limit_s = None if math.isinf(timeout_s) else timeout_s
    return httpx.Timeout(limit_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))
