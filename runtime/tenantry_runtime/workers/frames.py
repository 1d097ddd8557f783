"""What the runtime and an isolate say to each other, over one Unix stream.

A frame on the stream:

| bytes | what |
|---|---|
| 4 | length of what follows, uint32, big-endian; at most `MAX_FRAME_BYTES` |
| as many | a MessagePack array: the number of the message, then its fields in the order below |

| number | from | message |
|---|---|---|
| 0 | runtime | `File`: a piece of a file of the bundle |
| 1 | runtime | `Load`: import the worker |
| 2 | runtime | `Fetch`, 3 `Scheduled`, 4 `Rpc`: an invocation begins |
| 5 | runtime | `Cancel`: nobody waits for an invocation any more |
| 6 | runtime | `Result`, 7 `Refusal`, 8 `Fetched`, 9 `Streamed`: how a call ended |
| 10 | runtime | `Drain`: no more invocations come |
| 11 | runtime | `Resume`: those that come from here on may begin again |
| 20 | isolate | `Loaded`, 21 `LoadFailed` |
| 22 | isolate | `Respond`, 23 `Returned`, 24 `Failed`: how an invocation ended, or its response begins |
| 25 | isolate | `Finished`: nothing of an invocation runs any more, `wait_until` included |
| 26 | isolate | `Call`, 27 `Forget`: a call begins, or nobody waits for it any more |
| 28 | isolate | `Log` |
| 29 | isolate | `NeverEnds`: an invocation waits for nothing that can come |
| 30 | isolate | `Busy`: what keeps it from reading |
| 40 | both | `Data`, 41 `End`, 42 `Break`, 43 `Credit`: of a stream of bytes |

A stream has one sender. Its opener names it: even numbers are the runtime's, odd ones the isolate's,
and each is used once. The sender sends no more bytes than it was given credit for; a stream that the
isolate opens begins with `INITIAL_CREDIT`, one that the runtime opens with none, so that a stream that
the isolate hands on unread costs it nothing: naming the runtime's own stream as the body of a response
or of a call lets the runtime carry it past the isolate, and voids its number. A receiver ends a stream
that it does not want with `Break`; the sender has the last word, `End` or a `Break` of its own, and with
that the number is void. `Credit` and `Break` that cross the last word on their way mean nothing.

An isolate that does not read is asked by a signal, SIGURG, and says what keeps it: `Busy`. The invocations
that it has not begun then it never begins, neither those that it has read nor those that come before
`Resume`: the runtime begins them elsewhere, and their numbers are void.

Numbers of invocations, calls and streams only ever grow. When nothing is left to do after `Drain`, the
isolate ends.

Of what an isolate sends nothing is believed but that the isolate sent it: tenant, worker and what a
binding's name means are the runtime's knowledge. A frame that does not decode, an unknown number, a
stream out of its credit or a message out of order ends the isolate.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

MAX_FRAME_BYTES = 1 << 20
MAX_DATA_BYTES = 64 << 10
"""In one `Data`, in an inline body, and in one `File`."""
INITIAL_CREDIT = 256 << 10
"""Bytes that the sender of a stream that the isolate opens may send unasked."""
MAX_LOG_BYTES = 16 << 10
"""In one `Log`; longer lines come in several."""

Id: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 53)]
Name: TypeAlias = Annotated[str, Meta(max_length=1024)]
Text: TypeAlias = Annotated[str, Meta(max_length=64 << 10)]
Piece: TypeAlias = Annotated[bytes, Meta(max_length=MAX_DATA_BYTES)]
Status: TypeAlias = Annotated[int, Meta(ge=200, le=599)]
Headers: TypeAlias = Annotated[list[tuple[str, str]], Meta(max_length=256)]
"""In their order; names in lower case; a name may come more than once."""


class _Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """In a frame, the number and then the fields."""


class File(_Frame, frozen=True, tag=0):
    """A piece of a file of the bundle, in order; the first of a path begins it."""

    path: str
    """Relative, with slashes."""
    data: bytes


class BindingValue(msgspec.Struct, frozen=True, array_like=True):
    """What the worker finds in `env` under a name."""

    name: str
    kind: str
    """`ai`, `kv`, `service`, `value` (vars, secrets, version metadata), as in `spec`."""
    value: Any = None
    """Of kind `value`."""


class Load(_Frame, frozen=True, tag=1):
    """Import the worker's main module; its files have come."""

    main_module: str
    """Path of a file: `entry.py`. Its folder is first on `sys.path`."""
    bindings: list[BindingValue]
    has_vendored: bool = False
    """Whether files below `python_modules/` are on `sys.path` as packages."""
    log_lines: int = 256
    """Of an invocation; what is more is counted and dropped."""


class Trace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where in whose trace an invocation is, as W3C's trace context writes it."""

    traceparent: str = ""
    tracestate: str = ""


class Fetch(_Frame, frozen=True, tag=2):
    """An HTTP request for an entrypoint."""

    invocation: Id
    entrypoint: str
    """Name of a class; "" for the default one, or the module's functions."""
    method: str
    url: str
    headers: Headers
    body: bytes | None = None
    """A whole body that is small."""
    body_stream: Id | None = None
    """Else the stream, the runtime's, that has it."""
    seconds_left: float | None = None
    """Until the invocation is cancelled."""
    trace: Trace = Trace()


class Scheduled(_Frame, frozen=True, tag=3):
    """A cron trigger has come due."""

    invocation: Id
    entrypoint: str
    cron: str
    scheduled_ms: int
    """Unix time."""
    seconds_left: float | None = None
    trace: Trace = Trace()


class Rpc(_Frame, frozen=True, tag=4):
    """Another worker of the tenant calls a method of an entrypoint."""

    invocation: Id
    entrypoint: str
    method: str
    args: list[Any]
    kwargs: dict[str, Any]
    seconds_left: float | None = None
    trace: Trace = Trace()


class Cancel(_Frame, frozen=True, tag=5):
    """Nobody waits for an invocation any more: its task is cancelled, `wait_until` is not."""

    invocation: Id
    with_background: bool = False
    """`wait_until` as well."""


class Result(_Frame, frozen=True, tag=6):
    """What a call returns.

    What no frame can hold comes as `Streamed`: bytes as they are, all else as `application/json`.
    """

    call: Id
    value: Any


class Refusal(_Frame, frozen=True, tag=7):
    """Why a call returns nothing: raised in the worker."""

    call: Id
    name: str
    """Of the error: `AiError`, `InvalidInput`, `TypeError`."""
    message: str
    code: int | None = None


class Fetched(_Frame, frozen=True, tag=8):
    """The response that a call returns."""

    call: Id
    status: int
    headers: Headers
    body: bytes | None = None
    body_stream: Id | None = None
    url: str = ""


class Streamed(_Frame, frozen=True, tag=9):
    """The stream of bytes that a call returns."""

    call: Id
    stream: Id
    content_type: str = "text/event-stream"


class Drain(_Frame, frozen=True, tag=10):
    """No more invocations come."""


class Resume(_Frame, frozen=True, tag=11):
    """Answers `Busy`: what was sent before has begun or never will."""


class Loaded(_Frame, frozen=True, tag=20):
    """The worker is ready."""

    entrypoints: dict[str, list[str]]
    """Class name ("" for the default) to the names of its public methods."""
    cpu_ms: float
    """That the import took."""


class LoadFailed(_Frame, frozen=True, tag=21):
    """The worker's import raised."""

    name: Name
    message: Text
    path: Name = ""
    """The tenant's file where it raised."""
    line: int = 0
    trace: Text = ""


class Respond(_Frame, frozen=True, tag=22):
    """The response to a `Fetch`; with a stream, its body follows, or is the runtime's own stream."""

    invocation: Id
    status: Status
    headers: Headers
    body: Annotated[bytes, Meta(max_length=MAX_FRAME_BYTES)] | None = None
    body_stream: Id | None = None


class Returned(_Frame, frozen=True, tag=23):
    """What a `Rpc` returns, or that a `Scheduled` has ended."""

    invocation: Id
    value: Any = None


class Failed(_Frame, frozen=True, tag=24):
    """An invocation raised; also after `Respond`, while its body was made."""

    invocation: Id
    name: Name
    message: Text
    trace: Text = ""
    """As Python prints it, from the tenant's first line on."""


class Finished(_Frame, frozen=True, tag=25):
    """Nothing of an invocation runs any more."""

    invocation: Id


class Call(_Frame, frozen=True, tag=26):
    """Call what a binding offers."""

    call: Id
    invocation: Id
    """In whose task; 0 where the worker calls from none."""
    binding: Name
    """`FETCH` is the one that every worker has: outbound requests."""
    method: Name
    args: list[Any]
    body_stream: Id | None = None
    """Of `FETCH` and of services: a body that is long, or the runtime's own."""


class Forget(_Frame, frozen=True, tag=27):
    """Nobody waits for a call any more."""

    call: Id


class Log(_Frame, frozen=True, tag=28):
    """Something was printed or logged."""

    invocation: Id
    """0: outside of any."""
    level: Annotated[str, Meta(max_length=16)]
    """`log`, `debug`, `info`, `warn` or `error`."""
    text: Annotated[str, Meta(max_length=MAX_LOG_BYTES)]
    num_dropped: int = 0
    """Lines before it that were too many."""


class NeverEnds(_Frame, frozen=True, tag=29):
    """An invocation waits for something that nothing can bring."""

    invocation: Id
    path: Name
    line: int


class Busy(_Frame, frozen=True, tag=30):
    """What keeps the isolate from reading, and which invocations it gives back unbegun."""

    invocation: Id
    """In whose task it works or waits; 0: in none."""
    path: Name
    line: int
    last: Id
    """The last that it has read; those after it are given back."""
    unbegun: Annotated[list[Id], Meta(max_length=1024)]
    """So are these."""


class Data(_Frame, frozen=True, tag=40):
    """Bytes of a stream."""

    stream: Id
    data: Piece


class End(_Frame, frozen=True, tag=41):
    """A stream has come to its end."""

    stream: Id


class Break(_Frame, frozen=True, tag=42):
    """A stream ends here: its sender failed, or its receiver wants no more."""

    stream: Id
    message: Text = ""


class Credit(_Frame, frozen=True, tag=43):
    """The receiver of a stream has room for more."""

    stream: Id
    num_bytes: Annotated[int, Meta(gt=0, le=1 << 30)]


ToIsolate: TypeAlias = (
    File
    | Load
    | Fetch
    | Scheduled
    | Rpc
    | Cancel
    | Result
    | Refusal
    | Fetched
    | Streamed
    | Drain
    | Resume
    | Data
    | End
    | Break
    | Credit
)
FromIsolate: TypeAlias = (
    Loaded
    | LoadFailed
    | Respond
    | Returned
    | Failed
    | Finished
    | Call
    | Forget
    | Log
    | NeverEnds
    | Busy
    | Data
    | End
    | Break
    | Credit
)
