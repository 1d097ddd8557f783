"""Step loops joined by ports in memory, and an edge that sends sequences through them in parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from support.engine import Transcript
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.pool.messages import (
    Deliver,
    Delivered,
    Failed,
    HandoffTarget,
    NodeMessage,
    Preempted,
    PrefixChanges,
    Reserved,
    Started,
    Step,
    Submit,
)


@dataclass(slots=True, eq=False)
class Errand:
    """One request on its way through two nodes."""

    submit: Submit
    prefill: str
    decode: str
    said: list[str] = field(default_factory=list)
    """Kinds of the messages that came of it, in order."""
    num_restarts: int = 0
    first_cached: int | None = None


@dataclass(eq=False)
class Cluster:
    """Loops by address; `""` stands for a node's own members."""

    nodes: Mapping[str, EngineLoop]
    transcript: Transcript = field(default_factory=Transcript)
    errands: dict[str, Errand] = field(default_factory=dict)
    held_back: set[str] = field(default_factory=set)
    """Kinds of messages that the edge does not act on, for now."""
    targets: dict[str, HandoffTarget] = field(default_factory=dict)
    """What was reserved, by request."""

    def send(self, submit: Submit, prefill: str, decode: str) -> None:
        self.errands[submit.request_id] = Errand(submit, prefill, decode)
        self.nodes[prefill].submit(replace(submit, part="prefill"))

    def cancel(self, request_id: str) -> None:
        for loop in self.nodes.values():
            loop.cancel(request_id)

    def turn(self) -> None:
        for address, loop in self.nodes.items():
            ahead: list[NodeMessage] = []
            told = loop.turn(ahead.append)
            self.read(address, [*ahead, *told])

    def run_to_end(self, max_turns: int = 3000) -> Transcript:
        for _ in range(max_turns):
            if self.is_quiet:
                return self.transcript
            self.turn()
        raise AssertionError(f"still at work after {max_turns} turns")

    @property
    def is_quiet(self) -> bool:
        return all(loop.is_empty and loop.is_idle for loop in self.nodes.values())

    def read(self, address: str, messages: Iterable[NodeMessage]) -> None:
        for message in messages:
            match message:
                case Step(sequences=sequences):
                    for sequence in sequences:
                        errand = self.errands[sequence.request_id]
                        errand.said.append("tokens")
                        if errand.first_cached is None:
                            errand.first_cached = sequence.cached_tokens
                    self.transcript.read([message])
                case Failed(request_id=name):
                    self.errands[name].said.append("failed")
                    if name not in self.transcript.failed:
                        self.transcript.read([message])
                    self.cancel(name)
                case PrefixChanges():
                    pass
                case _:
                    self._act(message)

    def _act(self, message: Started | Reserved | Delivered | Preempted) -> None:
        name = message.request_id
        errand = self.errands[name]
        kind = type(message).__name__.lower()
        errand.said.append(kind)
        if isinstance(message, Reserved):
            self.targets[name] = message.target
        if kind in self.held_back:
            return
        match message:
            case Started():
                self.nodes[errand.decode].submit(replace(self._rest(errand), part="decode"))
            case Reserved(target=target):
                address = "" if errand.prefill == errand.decode else errand.decode
                deliver = Deliver(request_id=name, address=address, target=target)
                self.nodes[errand.prefill].deliver(deliver)
            case Preempted():
                errand.num_restarts += 1
                self.cancel(name)
                self.nodes[errand.prefill].submit(replace(self._rest(errand), part="prefill"))
            case Delivered():
                pass

    def _rest(self, errand: Errand) -> Submit:
        told = self.transcript.tokens[errand.submit.request_id]
        submit = errand.submit
        return replace(
            submit,
            token_ids=[*submit.token_ids, *told],
            num_generated=len(told),
            max_tokens=submit.max_tokens - len(told),
        )


def assert_nothing_is_left(*loops: EngineLoop) -> None:
    for loop in loops:
        loop.turn()
        statistics = loop.statistics()
        assert loop.audit() == []
        assert statistics.audit_findings == ()
        assert (statistics.num_running, statistics.num_waiting) == (0, 0)
        for lane in loop.lanes:
            pool = lane.pool.statistics()
            assert pool.num_private == pool.num_quiescing == pool.num_quarantined == 0
            assert pool.num_handoffs == pool.num_leases == 0
            assert pool.num_free + lane.prefixes.num_evictable == pool.num_pages
