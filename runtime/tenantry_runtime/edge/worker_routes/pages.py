"""What a client is told where a worker does not answer: which worker, and how its owner finds out why.

| outcome | status | code | why |
|---|---|---|---|
| | 404 | 1042 | there is no such worker, or it has no URL of its own |
| | 403 | 1042 | its account is suspended |
| | 400, 405 | 1042 | the request is for no one host, or wants a proxy |
| | 413, 414, 431 | 1042 | the request's body, URL or headers are too large |
| | 408 | 1042 | the request's body does not come |
| `exception` | 500 | 1101 | the worker raised, or its response cannot be sent |
| `neverResponds` | 500 | 1101 | it waits for what never comes |
| `crashed` | 500 | 1101 | its isolate died of a signal, or ended itself |
| `scriptNotFound` | 500 | 1101 | it cannot be started |
| `protocolViolation` | 500 | 1101 | its isolate said what no worker says by itself, and was ended |
| `responseStreamTooLarge` | 500 | 1101 | it responded with more than it may |
| `ok` | 500 | 1101 | it ended without a response |
| `exceededCpu`, `exceededMemory`, `exceededWallTime` | 503 | 1102 | it used more CPU time, memory or time than it may |
| `overloaded` | 503 | 1105 | no isolate was free in time |
| `unresponsive` | 503 | 1105 | another request held its isolate up, and was ended with it |
| `canceled` | 503 | 1105 | the runtime ended it |
| `internalError` | 503 | 1105 | the runtime could not read the worker or make an isolate: its operator's log says why |
| | 503 | 1105 | the edge has no place or ends, or the store does not answer |
| | 500 | 1105 | an internal error, which is in the edge's log |

1101 and 1102 are Cloudflare's. What a worker printed or raised is its owner's alone, and in none of these.
A client that asks for HTML gets a page, others JSON.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from tenantry_runtime.workers.interface import WorkerFailed
from tenantry_runtime.workers.outcome import Outcome

NOT_SERVED = 1042
RAISED = 1101
EXCEEDED = 1102
UNAVAILABLE = 1105

_STATUS: Mapping[Outcome, tuple[int, int, str]] = MappingProxyType(
    {
        Outcome.EXCEPTION: (500, RAISED, "raised an exception"),
        Outcome.NEVER_RESPONDS: (500, RAISED, "waits for something that never comes"),
        Outcome.CRASHED: (500, RAISED, "crashed"),
        Outcome.VIOLATION: (500, RAISED, "broke the protocol of isolates and was ended"),
        Outcome.RESPONSE_TOO_LARGE: (500, RAISED, "responded with more than it may"),
        Outcome.LOAD_FAILED: (500, RAISED, "cannot be started"),
        Outcome.EXCEEDED_CPU: (503, EXCEEDED, "used more CPU time than it may"),
        Outcome.EXCEEDED_MEMORY: (503, EXCEEDED, "used more memory than it may"),
        Outcome.EXCEEDED_WALL: (503, EXCEEDED, "took longer than it may"),
        Outcome.UNRESPONSIVE: (503, UNAVAILABLE, "was held up by another request"),
        Outcome.OVERLOADED: (503, UNAVAILABLE, "has more requests than it can serve"),
        Outcome.CANCELED: (503, UNAVAILABLE, "was stopped"),
        Outcome.INTERNAL: (503, UNAVAILABLE, "cannot run here: the runtime's operator sees why"),
        Outcome.OK: (500, RAISED, "ended without a response"),
    }
)


class Refused(Exception):
    """A request that no worker hears of."""

    def __init__(
        self,
        status: int,
        problem: str,
        *,
        code: int = NOT_SERVED,
        retry_after_s: int | None = None,
    ) -> None:
        self.status = status
        self.problem = problem
        self.code = code
        self.retry_after_s = retry_after_s
        super().__init__(status, problem)


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why there is no answer, as it is told to anybody."""

    status: int
    code: int
    message: str
    worker: str
    ray: str
    outcome: str = ""
    hint: str = ""
    retry_after_s: int | None = None


class _Reason(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    message: str


class _Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    success: bool
    errors: tuple[_Reason, ...]
    worker: str = ""
    ray: str
    outcome: str = ""
    hint: str = ""
    result: None = None


def of_failure(failed: WorkerFailed, worker: str, ray: str) -> Problem:
    """Tell of an invocation that ended without a response."""
    status, code, what = _STATUS[failed.outcome]
    return Problem(
        status=status,
        code=code,
        message=f"Worker {worker} {what}",
        worker=worker,
        ray=ray,
        outcome=failed.outcome.value,
        hint=f"Its owner sees why with: workerctl tail {worker}, or workerctl logs {worker}",
        retry_after_s=failed.retry_after_s,
    )


def of_refusal(refused: Refused, worker: str, ray: str) -> Problem:
    """Tell of a request that no worker heard of; `worker` is empty where it is for none."""
    return Problem(
        status=refused.status,
        code=refused.code,
        message=f"Worker {worker}: {refused.problem}" if worker else refused.problem,
        worker=worker,
        ray=ray,
        retry_after_s=refused.retry_after_s,
    )


def unknown_worker(account: str, worker: str, ray: str) -> Problem:
    """Tell that nobody answers under a name."""
    return Problem(
        status=404,
        code=NOT_SERVED,
        message=f"There is no worker {worker} in account {account}",
        worker=worker,
        ray=ray,
        hint="If it is yours: workerctl deploy puts it here, and workerctl deployments list shows it. "
        "One that is there may have no URL of its own: workers_dev and routes in its configuration say so",
    )


def printed(problem: Problem, *, as_html: bool) -> tuple[bytes, str]:
    """Return a body and its content type."""
    if as_html:
        return _page(problem).encode(), "text/html; charset=utf-8"
    told = _Told(
        success=False,
        errors=(_Reason(code=problem.code, message=problem.message),),
        worker=problem.worker,
        ray=problem.ray,
        outcome=problem.outcome,
        hint=problem.hint,
    )
    return msgspec.json.encode(told), "application/json"


_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{status} | {worker}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 15vh auto; padding: 0 1.5rem }}
h1 {{ font-size: 1.4rem; font-weight: 600 }}
code {{ font-size: .9em }}
footer {{ opacity: .7; font-size: .85rem; margin-top: 3rem }}
</style>
<h1>{message}</h1>
{hint}<footer>Error {code}{outcome}, request <code>{ray}</code></footer>
</html>
"""


def _page(problem: Problem) -> str:
    return _PAGE.format(
        status=problem.status,
        code=problem.code,
        worker=html.escape(problem.worker),
        message=html.escape(problem.message),
        ray=html.escape(problem.ray),
        outcome=f" ({html.escape(problem.outcome)})" if problem.outcome else "",
        hint=f"<p>{html.escape(problem.hint)}</p>\n" if problem.hint else "",
    )
