"""Which edge waits for which sequence, and what each edge is still owed. No I/O.

The step loop knows a sequence by the front's own name for it, unique in the life of the node: so
tokens of a cancelled sequence can never reach a later one that an edge gave the same id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import anyio
from msgspec.structs import replace

from .frames import MalformedFrame
from .messages import (
    HERE,
    Cancel,
    Deliver,
    Failed,
    NodeMessage,
    PrefixChanges,
    Reserved,
    SequenceTokens,
    Started,
    Step,
)
from .pending import PendingTokens
from .prefix_board import PrefixBoard, PrefixFeed
from .wire import TOKEN_ID_BYTES, PackedSubmit, SequenceReport

MAX_PENDING_TOKENS = 1 << 16
"""Of one edge. An edge that has fallen this far behind loses the sequences that bring more: at
50 tokens a second that is over 20 seconds of 64 sequences."""

MAX_PENDING_NOTICES = 1 << 10
"""Of one edge: what is said of sequences, their tokens aside, a few times each. Nothing more is read
from an edge that has not taken these."""


@dataclass(slots=True, eq=False)
class EdgeStream:
    """One edge's Work stream: its running sequences, and what it has not taken yet."""

    prefixes: PrefixFeed
    names: dict[str, str] = field(default_factory=dict)
    """The front's names of its running sequences, by the edge's ids."""
    num_pending_tokens: int = 0
    is_ending: bool = False
    """Nothing follows what is pending."""
    failure: str | None = None
    """Why, if the node has not chosen to end."""
    _pending: dict[str, PendingTokens] = field(default_factory=dict)
    _notices: list[SequenceReport] = field(default_factory=list)
    _step: int = 0
    _changed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def has_pending(self) -> bool:
        return bool(self._pending or self._notices or self.prefixes.has_pending)

    async def take(self) -> list[NodeMessage]:
        """Wait for something to say: the tokens as one `Step`, then the rest; [] at the end."""
        while not self.has_pending and not self.is_ending:
            await self._changed.wait()
        messages: list[NodeMessage] = []
        if self._pending:
            sequences = [pending.take() for pending in self._pending.values()]
            messages.append(Step(step=self._step, sequences=sequences))
        messages += self._notices
        messages += self.prefixes.take()
        self._pending = {}
        self._notices = []
        self.num_pending_tokens = 0
        self.announce()
        return messages

    async def wait_for_room(self) -> None:
        """Return when the edge may submit more."""
        while len(self._notices) >= MAX_PENDING_NOTICES:
            await self._changed.wait()

    def add_tokens(self, step: int, tokens: SequenceTokens) -> None:
        self._step = step
        self.num_pending_tokens += len(tokens.token_ids)
        pending = self._pending.get(tokens.request_id)
        if pending is None:
            self._pending[tokens.request_id] = PendingTokens(tokens)
        else:
            pending.add(tokens)

    def add_notice(self, notice: SequenceReport) -> None:
        self._notices.append(notice)

    def announce(self) -> None:
        """Wake who waits, once for all that was added or taken."""
        self._changed.set()
        self._changed = anyio.Event()


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchStatistics:
    """How much a front keeps track of; all zero when no edge waits for anything."""

    num_edges: int
    num_sequences: int
    num_pending_tokens: int
    num_pending_edges: int = 0
    """That have not taken all that was said to them."""


class Dispatch:
    """The sequences of all edges of one life of a node."""

    def __init__(self, *, incarnation: int = 0) -> None:
        self._incarnation = incarnation
        self._prefixes = PrefixBoard()
        self._streams: set[EdgeStream] = set()
        self._routes: dict[str, tuple[EdgeStream, str]] = {}
        self._serial = count()
        self._quiet = anyio.Event()

    async def until_quiet(self) -> None:
        """Return when no edge waits for a sequence."""
        while self._routes:
            await self._quiet.wait()

    def open(self) -> EdgeStream:
        stream = EdgeStream(PrefixFeed(self._prefixes))
        self._streams.add(stream)
        return stream

    def close(self, stream: EdgeStream) -> list[Cancel]:
        """Forget an edge; return what to tell the step loop."""
        self._streams.discard(stream)
        return [self._end(stream, request_id) for request_id in list(stream.names)]

    def admit(self, stream: EdgeStream, submit: PackedSubmit) -> PackedSubmit:
        """Note who waits for a sequence; return it under the front's own name."""
        if submit.request_id in stream.names:
            raise MalformedFrame(f"sequence {submit.request_id!r} is running already")
        if len(submit.token_ids) % TOKEN_ID_BYTES:
            raise MalformedFrame(f"{len(submit.token_ids)} bytes are no whole number of token ids")

        name = f"{submit.request_id}#{next(self._serial)}"
        stream.names[submit.request_id] = name
        self._routes[name] = (stream, submit.request_id)
        return replace(submit, request_id=name)

    def cancel(self, stream: EdgeStream, request_id: str) -> Cancel | None:
        """Forget one sequence; None when it has ended or was never there."""
        return self._end(stream, request_id) if request_id in stream.names else None

    def direct(self, stream: EdgeStream, deliver: Deliver) -> Deliver | None:
        """Return it under the front's own name; None when its sequence has ended meanwhile."""
        name = stream.names.get(deliver.request_id)
        if name is None:
            return None
        # pages that this node has reserved itself need not leave it
        is_here = deliver.target.incarnation == self._incarnation
        return replace(deliver, request_id=name, address=HERE if is_here else deliver.address)

    def deliver(self, step: Step) -> list[Cancel]:
        """Hand a step's tokens to the edges; return the sequences lost to edges that do not read."""
        woken: set[EdgeStream] = set()
        lost: list[Cancel] = []
        for tokens in step.sequences:
            route = self._routes.get(tokens.request_id)
            if route is None:
                continue  # cancelled while this step ran
            stream, request_id = route
            woken.add(stream)
            if stream.num_pending_tokens + len(tokens.token_ids) > MAX_PENDING_TOKENS:
                lost.append(self._end(stream, request_id))
                stream.add_notice(
                    Failed(
                        request_id=request_id,
                        reason="internal",
                        message=f"the edge left {stream.num_pending_tokens} tokens unread",
                    )
                )
                continue
            stream.add_tokens(step.step, replace(tokens, request_id=request_id))
            if tokens.finish is not None:
                self._end(stream, request_id)
        for stream in woken:
            stream.announce()
        return lost

    def report(self, report: SequenceReport) -> None:
        """Tell the edge that waits for it what became of a sequence."""
        route = self._routes.get(report.request_id)
        if route is None:
            return
        stream, request_id = route
        match report:
            case Started():
                stream.add_notice(replace(report, request_id=request_id))
            case Reserved(target=target):
                ours = replace(target, incarnation=self._incarnation)
                stream.add_notice(replace(report, request_id=request_id, target=ours))
            case _:
                # nothing follows
                self._end(stream, request_id)
                stream.add_notice(replace(report, request_id=request_id))
        stream.announce()

    def refuse(self, stream: EdgeStream, request_id: str, problem: str) -> None:
        """Answer a sequence that the step loop never hears of."""
        stream.add_notice(Failed(request_id=request_id, reason="capacity", message=problem))
        stream.announce()

    def broadcast(self, changes: PrefixChanges) -> None:
        """Tell all edges, now and later, which pages a member's prefix trees have."""
        self._prefixes.apply(changes)
        for stream in self._streams:
            stream.prefixes.add(changes)
            stream.announce()

    def end(self, problem: str, *, is_chosen: bool = False) -> None:
        """Fail every sequence and end every stream: the step loop is gone, or the node has chosen to end."""
        for name in list(self._routes):
            cut_off = Failed(request_id=name, reason="internal", message=problem, is_cut_off=True)
            self.report(cut_off)
        for stream in self._streams:
            stream.is_ending = True
            stream.failure = None if is_chosen else problem
            stream.announce()

    def statistics(self) -> DispatchStatistics:
        return DispatchStatistics(
            num_edges=len(self._streams),
            num_sequences=len(self._routes),
            num_pending_tokens=sum(stream.num_pending_tokens for stream in self._streams),
            num_pending_edges=sum(stream.has_pending for stream in self._streams),
        )

    def _end(self, stream: EdgeStream, request_id: str) -> Cancel:
        name = stream.names.pop(request_id)
        del self._routes[name]
        if not self._routes:
            self._quiet.set()
            self._quiet = anyio.Event()
        return Cancel(request_id=name)
