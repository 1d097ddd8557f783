"""What is sent for each call; no I/O, so that both clients share it."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

import httpx
import msgspec

from ._config import Config
from ._version import __version__
from .errors import InvalidInput

# Any: the body is the model's own, and the server checks it
Inputs: TypeAlias = Mapping[str, Any]

# a server sends nothing of an unstreamed answer until all of it is there, which for a long answer
# of a reasoning model takes minutes; a lost connection is noticed at once, whatever this says
DEFAULT_TIMEOUT_S = 600.0
CONNECT_TIMEOUT_S = 5.0

MODELS_PER_PAGE = 100

# agents hold many streams open at a time
LIMITS = httpx.Limits(max_connections=1000, max_keepalive_connections=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, before a client sends it."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes | None = None
    timeout: httpx.Timeout
    is_stream: bool = False

    def build(self) -> httpx.Request:
        return httpx.Request(
            self.method,
            self.url,
            headers=self.headers,
            content=self.content,
            extensions={"timeout": self.timeout.as_dict()},
        )


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
        session: str | None,
        timeout: float | None,
        extra_headers: Mapping[str, str] | None,
    ) -> Call:
        is_stream = _is_stream(inputs, stream)
        headers = {
            **self._headers(),
            "accept": "text/event-stream" if is_stream else "application/json",
            "content-type": "application/json",
        }
        if session is not None:
            headers["x-session-affinity"] = session
        headers.update({name.lower(): value for name, value in (extra_headers or {}).items()})
        return Call(
            method="POST",
            url=f"{self.config.account_url}/ai/run/{_model_path(model)}",
            headers=headers,
            content=msgspec.json.encode({**inputs, "stream": is_stream}),
            timeout=_httpx_timeout(self.timeout if timeout is None else timeout),
            is_stream=is_stream,
        )

    def models(self, page: int) -> Call:
        query = f"page={page}&per_page={MODELS_PER_PAGE}"
        return Call(
            method="GET",
            url=f"{self.config.account_url}/ai/models/search?{query}",
            headers={**self._headers(), "accept": "application/json"},
            timeout=_httpx_timeout(self.timeout),
        )

    def coverage(self) -> Call:
        return Call(
            method="GET",
            url=f"{self.config.account_url}/ai/coverage",
            headers={**self._headers(), "accept": "application/json"},
            timeout=_httpx_timeout(self.timeout),
        )

    def _headers(self) -> dict[str, str]:
        return {
            "authorization": f"Bearer {self.config.api_token}",
            "user-agent": f"tenantry/{__version__} python/{platform.python_version()}",
        }


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
