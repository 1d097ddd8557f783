"""Workers AI's dialect, `/ai/run/{model}`: the parameters of `chat_request`, and these.

| parameters | |
|---|---|
| `prompt` | instead of `messages`; one of them is required |
| `model` | another name of the model in the path |

Streams carry usage unless told not to. The answer has the form that the catalog says: OpenAI's
`chat.completion` (`chat_output`), or that of older models of Workers AI (`flat_output`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from tenantry_runtime.core import GenerateRequest
from tenantry_runtime.edge import envelope
from tenantry_runtime.edge.errors import answer
from tenantry_runtime.errors import InvalidInput, TenantryError

from . import parameters
from .chat_output import ChatPrinter
from .chat_request import ChatInput, generate_request
from .dialect import Printer, Target
from .flat_output import FlatPrinter


class RunInput(ChatInput, frozen=True, kw_only=True):
    """The body of `/ai/run/{model}`."""

    prompt: Annotated[str, Meta(min_length=1)] | None = None


_decoder = msgspec.json.Decoder(RunInput)


class WorkersAI:
    """The dialect; stateless."""

    id_prefix = "chatcmpl-"

    def __init__(self, *, draw_seed: Callable[[], int] = parameters.draw_seed) -> None:
        self._draw_seed = draw_seed

    def model(self, _body: bytes) -> None:
        """Name no model, as `Dialect` says: the path does."""

    def parse(self, body: bytes, target: Target, *, session: str | None) -> GenerateRequest:
        """Read a request, as `Dialect` says."""
        asked = parameters.decode(_decoder, body)
        if asked.model is not None and asked.model not in target.entry.names:
            raise InvalidInput("model", f"{asked.model!r} is not the model of the path")
        if (asked.prompt is None) == (asked.messages is None):
            raise InvalidInput("", "exactly one of 'prompt' and 'messages' is required")
        request = generate_request(
            asked,
            target,
            session=session,
            seed=self._draw_seed(),
            include_usage=True,
            prompt=asked.prompt,
        )
        if target.entry.result_shape == "response":
            _check_response(request)
        return request

    def printer(
        self, request: GenerateRequest, target: Target, *, response_id: str, created_s: int
    ) -> Printer:
        """Make the printer of one answer, as `Dialect` says."""
        if target.entry.result_shape == "response":
            return FlatPrinter(request, response_id=response_id, prices=target.prices)
        return ChatPrinter(
            request,
            response_id=response_id,
            created_s=created_s,
            token_bytes=target.token_bytes,
            prices=target.prices,
        )

    def error(self, error: TenantryError) -> tuple[int, bytes]:
        """Return status and body, as `Dialect` says."""
        return answer(error).status, envelope.failure(error)


def _check_response(request: GenerateRequest) -> None:
    """Refuse what the older form has no place for."""
    problem = "the answers of this model have no place for it"
    if request.num_choices > 1:
        raise InvalidInput("n", problem)
    if request.sampling.top_logprobs is not None:
        raise InvalidInput("logprobs", problem)
