"""The client of a Tenantry runtime: `AI` and `AsyncAI`, what they return, and what they raise.

Errors are drawn as a tree in `tenantry.errors`; the file in which `workerctl dev` leaves its
credentials is described in `tenantry.credentials`. `tenantry.workers` is what workers are written
with: importing it imports nothing of the client, which comes with the first of its names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from ._async_client import AsyncAI
    from ._batch import AsyncBatch, Batch
    from ._client import AI
    from ._mock import MockTransport
    from ._results import (
        BatchError,
        BatchResponse,
        BatchResult,
        Choice,
        Chunk,
        ChunkChoice,
        Completion,
        CompletionTokensDetails,
        Coverage,
        CoveredOp,
        Delta,
        FunctionCall,
        FunctionCallDelta,
        Logprobs,
        Message,
        Model,
        ModelProperty,
        ModelTask,
        PromptTokensDetails,
        TokenAlternative,
        TokenLogprob,
        ToolCall,
        ToolCallDelta,
        Usage,
    )
    from ._stream import AsyncParsedStream, AsyncStream, ParsedStream, Stream
    from ._tools import Tool, ToolResult, run_tools, run_tools_async, tool
    from .errors import (
        AnswerCut,
        APIError,
        AuthenticationError,
        CapacityExceeded,
        ConfigurationError,
        ConnectionFailed,
        ContextExceeded,
        InvalidInput,
        InvalidResponse,
        NotFound,
        PermissionDenied,
        QuotaExceeded,
        RateLimited,
        RequestTimeout,
        ServerError,
        StreamTruncated,
        TenantryError,
        TooLarge,
        UnknownModel,
    )

__all__ = [
    "AI",
    "APIError",
    "AnswerCut",
    "AsyncAI",
    "AsyncBatch",
    "AsyncParsedStream",
    "AsyncStream",
    "AuthenticationError",
    "Batch",
    "BatchError",
    "BatchResponse",
    "BatchResult",
    "CapacityExceeded",
    "Choice",
    "Chunk",
    "ChunkChoice",
    "Completion",
    "CompletionTokensDetails",
    "ConfigurationError",
    "ConnectionFailed",
    "ContextExceeded",
    "Coverage",
    "CoveredOp",
    "Delta",
    "FunctionCall",
    "FunctionCallDelta",
    "InvalidInput",
    "InvalidResponse",
    "Logprobs",
    "Message",
    "MockTransport",
    "Model",
    "ModelProperty",
    "ModelTask",
    "NotFound",
    "ParsedStream",
    "PermissionDenied",
    "PromptTokensDetails",
    "QuotaExceeded",
    "RateLimited",
    "RequestTimeout",
    "ServerError",
    "Stream",
    "StreamTruncated",
    "TenantryError",
    "TokenAlternative",
    "TokenLogprob",
    "TooLarge",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolResult",
    "UnknownModel",
    "Usage",
    "__version__",
    "run_tools",
    "run_tools_async",
    "tool",
]

_MODULES = ("credentials", "errors")
"""What is public besides, as a module."""


if not TYPE_CHECKING:
    # of this, type checkers would conclude that every name is here
    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            exports = import_module(f"{__name__}._exports")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}._exports":
                raise
            raise ImportError(
                f"tenantry.{name} is not in an isolate, which has tenantry.workers only: "
                "env.AI.run asks models there"
            ) from None
        globals().update({each: getattr(exports, each) for each in exports.__all__})
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
