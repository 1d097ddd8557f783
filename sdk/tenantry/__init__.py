"""The client of a Tenantry runtime: `AI` and `AsyncAI`, what they return, and what they raise.

Errors are drawn as a tree in `tenantry.errors`; the file in which `workerctl dev` leaves its
credentials is described in `tenantry.credentials`.
"""

from __future__ import annotations

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
from ._version import __version__
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

# reprs and tracebacks name the place to import from
for _name in __all__:
    if not _name.startswith("__"):
        globals()[_name].__module__ = __name__
