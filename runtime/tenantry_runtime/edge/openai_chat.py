"""OpenAI's chat API, `/v1/chat/completions`: the parameters are in `chat_request`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tenantry_runtime.core import GenerateRequest
from tenantry_runtime.errors import InvalidInput, TenantryError

from . import openai_errors, parameters
from .chat_output import ChatPrinter
from .chat_request import ChatInput, generate_request
from .dialect import Target


class ChatCompletionInput(ChatInput, frozen=True, kw_only=True):
    """The body of `/chat/completions`."""

    model: str


_decoder = msgspec.json.Decoder(ChatCompletionInput)


class OpenAIChat:
    """The dialect; stateless."""

    id_prefix = "chatcmpl-"

    def __init__(self, *, draw_seed: Callable[[], int] = parameters.draw_seed) -> None:
        self._draw_seed = draw_seed

    def model(self, body: bytes) -> str:
        """Name the model, as `Dialect` says."""
        return parameters.model_of(body)

    def parse(self, body: bytes, target: Target, *, session: str | None) -> GenerateRequest:
        """Read a request, as `Dialect` says."""
        asked = parameters.decode(_decoder, body)
        if asked.messages is None:
            raise InvalidInput("messages", "is required")
        return generate_request(
            asked,
            target,
            session=session,
            seed=self._draw_seed(),
            # as OpenAI does: clients that do not ask expect a choice in every chunk
            include_usage=False,
        )

    def printer(
        self, request: GenerateRequest, target: Target, *, response_id: str, created_s: int
    ) -> ChatPrinter:
        """Make the printer of one answer, as `Dialect` says; OpenAI's usage knows no neurons."""
        return ChatPrinter(
            request,
            response_id=response_id,
            created_s=created_s,
            token_bytes=target.token_bytes,
            wrap=msgspec.json.encode,
        )

    def error(self, error: TenantryError) -> tuple[int, bytes]:
        """Return status and body, as `Dialect` says."""
        return openai_errors.status(error), openai_errors.failure(error)
