"""The nodes that this edge knows, the router that chooses among their members, and what nodes are told
of each other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tenantry_runtime.errors import NodeUnavailable
from tenantry_runtime.pool.interface import TokenSource
from tenantry_runtime.pool.messages import (
    NodeDescription,
    NodeStatistics,
    PrefixChanges,
    ServedElsewhere,
    Submit,
)
from tenantry_runtime.pool.pairing import differences
from tenantry_runtime.routing.member import MemberId
from tenantry_runtime.routing.placement import Asked, Placement
from tenantry_runtime.routing.router import Router

from .incidents import NodeIncidents
from .service_reports import ServiceReports, concerns

_log = logging.getLogger(__name__)


class Nodes:
    """Keeps the router up to date. A `NodeObserver`: clients tell it what their nodes say.

    What a node has given goes to the others that have members of the same pool, what goes wrong with it
    to `incidents`, if somebody wants to know.
    """

    def __init__(
        self,
        nodes: Iterable[TokenSource] = (),
        *,
        router: Router | None = None,
        incidents: NodeIncidents | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.router = router or Router(differences=differences)
        self._clock = clock
        self._incidents = incidents
        self._services = ServiceReports()
        self._nodes: dict[str, TokenSource] = {}
        self._known: dict[str, NodeDescription] = {}
        self._statistics: dict[str, NodeStatistics] = {}
        for node in nodes:
            self.add(node)

    @property
    def all(self) -> tuple[TokenSource, ...]:
        return tuple(self._nodes.values())

    @property
    def health(self) -> Mapping[str, bool]:
        """By address, whether a node answers."""
        return {address: node.is_healthy for address, node in self._nodes.items()}

    @property
    def statistics(self) -> Mapping[str, NodeStatistics]:
        """By address, the latest of each node that has ever answered."""
        return self._statistics

    @property
    def now_s(self) -> float:
        """The time that the router goes by."""
        return self._clock()

    def add(self, node: TokenSource) -> None:
        """Know one more node. It need not be there yet."""
        assert node.address not in self._nodes, f"two nodes at {node.address}"
        self._nodes[node.address] = node

    def at(self, member: MemberId) -> TokenSource:
        """Return the node that a member is on."""
        return self._nodes[member.node]

    def can_serve(self, model: str) -> bool:
        """Whether `place` would find members now."""
        self._look()
        return self.router.can_serve(model, self.now_s)

    def require(self, model: str) -> None:
        """Raise `NodeUnavailable` unless the model can be served."""
        if not self.can_serve(model):
            raise NodeUnavailable(model)

    def place(self, asked: Asked, *, avoid: Collection[MemberId] = ()) -> Placement:
        """Choose where a request is prefilled, as `Router.prefill` does."""
        self._look()
        return self.router.prefill(asked, self.now_s, avoid=avoid)

    def place_decode(self, placement: Placement, *, avoid: Collection[MemberId] = ()) -> MemberId:
        """Choose where it is decoded, as `Router.decode` does."""
        self._look()
        return self.router.decode(placement, self.now_s, avoid=avoid)

    def address_for_nodes(self, member: MemberId) -> str:
        """Return the address at which other nodes reach a member."""
        node = self.at(member)
        return node.description.address or node.address

    def reported(self, node: str, statistics: NodeStatistics) -> None:
        self._statistics[node] = statistics
        self.router.report(node, statistics.loads, is_draining=statistics.is_draining)
        if self._incidents is not None:
            self._incidents.hear(node, statistics)
        for served in self._services.news(node, statistics):
            self._pass_on(node, served)

    def changed(self, node: str, description: NodeDescription, changes: PrefixChanges) -> None:
        self._meet(node, description)
        try:
            self.router.learn(node, changes)
        except ValueError as error:
            _log.warning("node %s: unreadable prefix changes: %s", node, error)

    def lost(self, node: str, reason: str, unfinished: Sequence[Submit]) -> None:
        if self._incidents is not None:
            self._incidents.lost(node, reason, unfinished)

    def left(self, node: str, cut_off: Sequence[Submit]) -> None:
        if self._incidents is not None:
            self._incidents.left(node, cut_off)

    def carried(self, request_id: str, failed: MemberId) -> None:
        """Take that a request which a member has failed goes on elsewhere."""
        if self._incidents is not None:
            self._incidents.carried(failed.node, request_id)

    def _pass_on(self, source: str, served: ServedElsewhere) -> None:
        """Tell the other nodes that have members of the pool."""
        self._look()
        for address, description in self._known.items():
            if address != source and concerns(served.report, description.members):
                self._nodes[address].pass_on(served)

    def _look(self) -> None:
        """See which nodes are there, and whether they are healthy."""
        for address, node in self._nodes.items():
            is_healthy = node.is_healthy
            if is_healthy:
                self._meet(address, node.description)
            self.router.set_health(address, is_healthy)

    def _meet(self, address: str, description: NodeDescription) -> None:
        known = self._known.get(address)
        if known is description:
            return
        self._known[address] = description
        if known is None or (known.incarnation, known.members) != (
            description.incarnation,
            description.members,
        ):
            self.router.join(address, description.members)
