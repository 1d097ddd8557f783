"""The runtime's own router, told by simulated members what nodes would tell an edge."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry_runtime.cache.prefix_keys import page_keys
from tenantry_runtime.core import PAGE_TOKENS, Phase
from tenantry_runtime.pool.messages import MemberDescription
from tenantry_runtime.routing.placement import Asked, Placement as Placed
from tenantry_runtime.routing.router import Router

from .member import MODEL, DecodeMember, Member, PrefillMember, Work
from .placement import Placement
from .workload import ReplayRequest

REPORT_S = 1.0
"""Between two reports of a member's load."""


class Routed(Placement):
    """Asks the router. What members hold it learns after their steps, their loads now and then."""

    def __init__(
        self,
        prefill: Sequence[PrefillMember],
        decode: Sequence[DecodeMember],
        *,
        router: Router,
        uses_sessions: bool,
    ) -> None:
        """Without sessions the router goes by prefixes."""
        super().__init__(prefill, decode)
        self._uses_sessions = uses_sessions
        self._router = router
        self._placed: dict[str, Placed] = {}
        self._silent: set[str] = set()
        """Placed, and without a token since."""
        self._nodes: dict[Member, str] = {}
        self._numbers: dict[str, int] = {}
        self._reported_s: dict[Member, float] = {}
        members: list[tuple[int, Member]] = [*enumerate(prefill), *enumerate(decode)]
        for place, (number, member) in enumerate(members):
            self._join(member, f"node-{place}", number)
        if not decode:
            # the router places nothing that could not be decoded
            self._router.join("nowhere", [_description("decode", 1 << 40)])

    def choose_prefill(self, request: ReplayRequest, work: Work, now_s: float) -> int:
        asked = Asked(
            tenant=work.tenant,
            model=MODEL,
            num_tokens=len(work.token_ids),
            max_tokens=work.max_tokens,
            session=work.session if self._uses_sessions else None,
            keys=page_keys(work.tenant, work.token_ids),
        )
        placed = self._placed[work.request_id] = self._router.prefill(asked, now_s)
        self._silent.add(work.request_id)
        return self._numbers[placed.prefill.node]

    def choose_decode(self, request_id: str, now_s: float) -> int:
        chosen = self._router.decode(self._placed[request_id], now_s)
        return self._numbers[chosen.node]

    def reserved(self, request_id: str) -> None:
        self._placed[request_id].reserve()

    def advanced(self, request_id: str, num_output: int) -> None:
        # as an edge does, about once a page
        if request_id in self._silent or num_output % PAGE_TOKENS == 1:
            self._silent.discard(request_id)
            self._placed[request_id].advance(num_output)

    def ended(self, request_id: str, num_output: int | None, now_s: float) -> None:
        self._silent.discard(request_id)
        placed = self._placed.pop(request_id)
        placed.end(now_s, is_answered=num_output is not None)
        if num_output is not None:
            self._router.lengths.add(placed.asked.tenant, MODEL, num_output)

    def stepped(self, member: Member, now_s: float) -> None:
        node = self._nodes[member]
        changes = member.prefix_changes()
        if changes is not None:
            self._router.learn(node, changes)
        if now_s >= self._reported_s.get(member, 0.0) + REPORT_S:
            self._reported_s[member] = now_s
            self._router.report(node, [member.load()])

    def _join(self, member: Member, node: str, number: int) -> None:
        self._nodes[member] = node
        self._numbers[node] = number
        self._router.join(node, [_description(member.phase, member.size.num_pages)])


def _description(phase: Phase, num_pages: int) -> MemberDescription:
    return MemberDescription(
        model=MODEL,
        phase=phase,
        weights_format="none",
        cache_format="none",
        page_tokens=PAGE_TOKENS,
        num_pages=num_pages,
        context_tokens=num_pages * PAGE_TOKENS,
        revision="",
    )
