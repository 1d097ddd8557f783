"""Sees whole sequences through both parts on one node, where its members have pools of their own.

It does what an edge does between two nodes, so that nobody who sends a whole sequence need know how
the node keeps its pages. A sequence that is preempted begins again with what it had said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from msgspec.structs import replace

from tenantry_runtime.pool.messages import (
    HERE,
    Deliver,
    Delivered,
    Failed,
    Part,
    Preempted,
    Reserved,
    SequenceTokens,
    Started,
    Submit,
)

from .scheduler import Report


class Parts(Protocol):
    """What runs the parts: the loop."""

    def run_part(self, submit: Submit, *, is_again: bool = False) -> None:
        """`is_again`: it has been let in before, and must not be refused for what else comes."""
        ...

    def deliver(self, deliver: Deliver) -> None: ...

    def cancel_parts(self, request_id: str) -> None: ...


@dataclass(slots=True, eq=False)
class _Errand:
    submit: Submit
    queued_s: float
    tokens: list[int] = field(default_factory=list)
    """Told so far."""
    num_restarts: int = 0
    started_s: float | None = None
    cached_tokens: int | None = None
    """When it was first started: what it is billed by."""
    first_token_s: float | None = None


class Relay:
    """The whole sequences of a node whose pools are separate."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._errands: dict[str, _Errand] = {}

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._errands

    def begin(self, submit: Submit, now_s: float) -> None:
        self._errands[submit.request_id] = _Errand(submit, now_s)
        self._parts.run_part(replace(submit, part="prefill"))

    def forget(self, request_id: str) -> None:
        self._errands.pop(request_id, None)

    def hear(self, report: Report, now_s: float) -> Report | None:
        """Act on a report; return what of it is to be told, if anything."""
        errand = self._errands.get(report.request_id)
        if errand is None:
            return report
        match report:
            case Started(cached_tokens=cached_tokens):
                if errand.started_s is None:
                    errand.started_s, errand.cached_tokens = now_s, cached_tokens
                self._run(errand, "decode")
            case Reserved(request_id=name, target=target):
                self._parts.deliver(Deliver(request_id=name, address=HERE, target=target))
            case Delivered():
                pass
            case Preempted():
                self._restart(errand)
            case Failed(request_id=name):
                self.forget(name)
                self._parts.cancel_parts(name)
                return report
            case SequenceTokens():
                return self._told(errand, report, now_s)
        return None

    def _restart(self, errand: _Errand) -> None:
        name = errand.submit.request_id
        errand.num_restarts += 1
        # it may have been given up before all had been pushed
        self._parts.cancel_parts(name)
        self._run(errand, "prefill")

    def _run(self, errand: _Errand, part: Part) -> None:
        is_again = errand.num_restarts > 0
        self._parts.run_part(replace(self._rest(errand), part=part), is_again=is_again)

    def _rest(self, errand: _Errand) -> Submit:
        """Return what is left to do: the prompt with what was said, and what may still be said."""
        submit, tokens = errand.submit, errand.tokens
        return replace(
            submit,
            token_ids=[*submit.token_ids, *tokens],
            num_generated=submit.num_generated + len(tokens),
            max_tokens=submit.max_tokens - len(tokens),
        )

    def _told(self, errand: _Errand, report: SequenceTokens, now_s: float) -> SequenceTokens:
        if errand.first_token_s is None:
            errand.first_token_s = now_s
            report = replace(report, cached_tokens=errand.cached_tokens or 0)
        elif report.cached_tokens:
            # it has been billed
            report = replace(report, cached_tokens=0)
        errand.tokens += report.token_ids
        if report.finish is None:
            return report
        self.forget(report.request_id)
        if report.timings is None or not errand.num_restarts or errand.started_s is None:
            return report
        timings = replace(
            report.timings,
            queued_ns=round(errand.queued_s * 1e9),
            prefill_started_ns=round(errand.started_s * 1e9),
            first_token_ns=round(errand.first_token_s * 1e9),
        )
        return replace(report, timings=timings)
