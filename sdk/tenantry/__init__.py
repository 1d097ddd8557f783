"""The client of a Tenantry runtime: `AI` and `AsyncAI`, what they return, and what they raise.

Errors are drawn as a tree in `tenantry.errors`; the file in which `workerctl dev` leaves its
credentials is described in `tenantry.credentials`.
"""

from __future__ import annotations

from ._async_client import AsyncAI
from ._client import AI
from ._mock import MockTransport
from ._results import (
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
    Message,
    Model,
    ModelProperty,
    ModelTask,
    PromptTokensDetails,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from ._stream import AsyncStream, Stream
from ._version import __version__
from .errors import (
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
    "AsyncAI",
    "AsyncStream",
    "AuthenticationError",
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
    "Message",
    "MockTransport",
    "Model",
    "ModelProperty",
    "ModelTask",
    "NotFound",
    "PermissionDenied",
    "PromptTokensDetails",
    "QuotaExceeded",
    "RateLimited",
    "RequestTimeout",
    "ServerError",
    "Stream",
    "StreamTruncated",
    "TenantryError",
    "TooLarge",
    "ToolCall",
    "ToolCallDelta",
    "UnknownModel",
    "Usage",
    "__version__",
]

# reprs and tracebacks name the place to import from
for _name in __all__:
    if not _name.startswith("__"):
        globals()[_name].__module__ = __name__
