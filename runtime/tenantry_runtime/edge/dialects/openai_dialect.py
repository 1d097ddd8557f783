"""What OpenAI's dialects have in common: bodies name their model, and errors have both shapes."""

from __future__ import annotations

from collections.abc import Callable

from tenantry_runtime.errors import TenantryError

from . import openai_errors, parameters


class OpenAIDialect:
    """A base of `Dialect`s; stateless but for where seeds come from."""

    def __init__(self, *, draw_seed: Callable[[], int] = parameters.draw_seed) -> None:
        self._draw_seed = draw_seed

    def model(self, body: bytes) -> str:
        """Name the model, as `Dialect` says."""
        return parameters.model_of(body)

    def error(self, error: TenantryError) -> tuple[int, bytes]:
        """Return status and body, as `Dialect` says."""
        return openai_errors.status(error), openai_errors.failure(error)
