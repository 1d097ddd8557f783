"""The response of a worker, as whoever asked gets it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from tenantry_runtime.workers.interface import ByteStream, HttpResponse, WorkerFailed
from tenantry_runtime.workers.isolate import InvocationFailed, IsolateEnded
from tenantry_runtime.workers.outcome import Outcome

from .running import Running
from .verdict import Verdict, of_exception


async def failure_of(running: Running, error: InvocationFailed | IsolateEnded) -> WorkerFailed:
    """Say why an invocation failed, when that is known."""
    verdict = running.verdict
    if verdict is None and isinstance(error, InvocationFailed):
        verdict = running.judge(of_exception(error))
    if verdict is None:
        # soon: the process is waited for, within a limit
        await running.resident.buried.wait()
        assert running.resident.verdict is not None
        verdict = running.judge(running.resident.verdict)
    return WorkerFailed(verdict.outcome, verdict.message)


def too_large(running: Running) -> Verdict:
    limit = running.record.version.limits.response_bytes
    return Verdict(Outcome.RESPONSE_TOO_LARGE, f"the response has more than {limit} bytes")


def broken(error: Exception) -> Verdict:
    problem = f"the stream that the response passes on broke off ({type(error).__name__})"
    return Verdict(Outcome.EXCEPTION, problem)


def limited(response: HttpResponse, running: Running) -> tuple[HttpResponse, ResponseBody | None]:
    """Hold a response to its version's limit; return its body too, if it comes in pieces.

    Raises `WorkerFailed` where a whole body is too large.
    """
    body = response.body
    cold_start_ms = running.record.cold_start_ms
    if not isinstance(body, bytes):
        stream = ResponseBody(body, running)
        return replace(response, body=stream, cold_start_ms=cold_start_ms), stream
    if len(body) > running.record.version.limits.response_bytes:
        verdict = running.judge(too_large(running))
        raise WorkerFailed(verdict.outcome, verdict.message)
    if cold_start_ms is not None:
        response = replace(response, cold_start_ms=cold_start_ms)
    return response, None


class ResponseBody:
    """A `ByteStream` of limited size, read once. Raises `WorkerFailed` where it breaks off."""

    __slots__ = ("_running", "_stream", "has_begun", "has_ended")

    def __init__(self, stream: ByteStream, running: Running) -> None:
        self._stream = stream
        self._running = running
        self.has_begun = False
        self.has_ended = False
        """Whether it has come to its own end, or broken off."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.has_begun = True
        running = self._running
        num_left = running.record.version.limits.response_bytes
        try:
            async for piece in self._stream:
                num_left -= len(piece)
                if num_left < 0:
                    running.resident.stop(running, too_large(running))
                # a stream that passes the isolate by does not end with the invocation
                if running.verdict is not None:
                    raise WorkerFailed(running.verdict.outcome, running.verdict.message)
                yield piece
        except (InvocationFailed, IsolateEnded) as error:
            self.has_ended = True
            raise await failure_of(running, error) from error
        except WorkerFailed:
            self.has_ended = True
            raise
        except Exception as error:
            # of a stream that passes the isolate by: what it raises is its maker's
            self.has_ended = True
            verdict = running.judge(broken(error))
            raise WorkerFailed(verdict.outcome, verdict.message) from error
        self.has_ended = True

    async def aclose(self) -> None:
        if not self.has_begun:
            # a response to HEAD is whole without its body
            self.has_ended = True
        await self._stream.aclose()
