"""OpenAI's chat API, `/v1/chat/completions`: the parameters are in `chat_request`."""

from __future__ import annotations

import msgspec

from tenantry_runtime.core import GenerateRequest
from tenantry_runtime.errors import InvalidInput

from . import parameters
from .chat_output import ChatPrinter
from .chat_request import ChatInput, generate_request
from .dialect import Target
from .openai_dialect import OpenAIDialect


class ChatCompletionInput(ChatInput, frozen=True, kw_only=True):
    """The body of `/chat/completions`."""

    model: str


_decoder = msgspec.json.Decoder(ChatCompletionInput)


class OpenAIChat(OpenAIDialect):
    """The dialect; stateless."""

    id_prefix = "chatcmpl-"

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
