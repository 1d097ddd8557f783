"""What expecting the length of answers is for: real schedulers, which preempt when pages run out."""

from __future__ import annotations

from support.routes import MODEL, a_load, a_router, asked
from support.scheduling import Desk
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.routing.quantile import OutputLengths
from tenantry_runtime.routing.router import Router

NUM_PAGES = 24
NUM_PROMPT = 60
NUM_OUTPUT = {"long": 500, "short": 4}


class NoExpectation(OutputLengths):
    """Takes every answer to be over when it begins."""

    def expected(self, tenant: str, model: str, max_tokens: int | None) -> int:
        return 0


def num_preemptions(lengths: OutputLengths) -> int:
    """Decode eight answers, long and short in turn, on two members; count preemptions."""
    for tenant, num_output in NUM_OUTPUT.items():
        for _ in range(20):
            lengths.add(tenant, MODEL, num_output)
    desks = {node: Desk(num_pages=NUM_PAGES, max_batch=8) for node in ("d0", "d1")}
    router = a_router(prefill=["p"], decode=desks, lengths=lengths)
    for number in range(8):
        report(router, desks)
        tenant = ("long", "short")[number % 2]
        placement = router.prefill(asked(tenant=tenant, num_tokens=NUM_PROMPT), 0.0)
        desk = desks[router.decode(placement, 0.0).node]
        desk.add(
            f"{tenant}-{number}",
            num_prompt=NUM_PROMPT,
            max_tokens=NUM_OUTPUT[tenant],
            tenant=tenant,
        )
        placement.reserve()
    for desk in desks.values():
        desk.run_to_end()
    return sum(desk.scheduler.statistics().num_preemptions for desk in desks.values())


def report(router: Router, desks: dict[str, Desk]) -> None:
    for node, desk in desks.items():
        taken = sum(-(-len(each.tokens) // PAGE_TOKENS) for each in desk.live.values())
        load = a_load("decode", NUM_PAGES - taken, num_sequences=len(desk.live))
        router.report(node, [load])


def test_who_ignores_how_long_answers_get_causes_preemptions() -> None:
    assert num_preemptions(NoExpectation()) > 0


def test_who_expects_the_usual_length_causes_none() -> None:
    assert num_preemptions(OutputLengths()) == 0
