"""What the page's plots and bars show follows from the numbers."""

from __future__ import annotations

from tenantry_runtime.edge.operator.console import PLOT_HEIGHT, PLOT_WIDTH, page_bar, plot, shares
from tenantry_runtime.edge.operator.report import TenantOverview
from tenantry_runtime.pool.pool_report import PoolReport
from tenantry_runtime.telemetry.metrics.recent import BUCKET_S, RecentRequests, quantiles


def test_a_bar_is_whole_and_each_part_as_long_as_its_pages() -> None:
    pool = PoolReport(model="m", phases=("decode",), pages={"free": 1, "private": 2, "shared": 1})
    parts = page_bar(pool)
    assert {part.kind: part.percent for part in parts if part.percent} == {
        "free": 25,
        "private": 50,
        "shared": 25,
    }


def test_what_was_had_is_compared_with_what_weights_promise() -> None:
    def tenant(name: str, weight: float, service: float) -> TenantOverview:
        return TenantOverview(
            tenant=name, weight=weight, guaranteed=0, ceiling=1, service=service, num_pages=0
        )

    assert shares([tenant("a", 3, 10), tenant("b", 1, 10)]) == {"a": (50, 75), "b": (50, 25)}
    assert shares([tenant("a", 1, 0)]) == {"a": (0, 100)}


def test_a_line_goes_from_edge_to_edge_and_as_high_as_its_values() -> None:
    drawn = plot([(1.0,), (), (2.0,)], "s")
    assert drawn.lines == (f"0.0,{PLOT_HEIGHT / 2:.1f} {PLOT_WIDTH:.1f},0.0",)
    assert drawn.most == "2 s"
    assert plot([(), ()], "s").lines == ()
    assert plot([(0.25,)], "s").most == "250 ms"


def test_quantiles_are_values_that_were_there() -> None:
    # nearest rank, of 1 to 100
    assert quantiles(range(100, 0, -1)) == (50, 90, 99)
    assert quantiles([7.0]) == (7.0, 7.0, 7.0)
    assert quantiles([]) == ()


def test_requests_are_of_the_stretch_in_which_they_ended() -> None:
    now_s = 1000.0
    recent = RecentRequests(clock_s=lambda: now_s)
    for ended_s, is_ok in ((0.0, True), (995.0, True), (985.0, False), (985.0, True)):
        now_s = ended_s
        recent.add("m", first_token_s=None, per_token_s=None, num_tokens=2, is_ok=is_ok)
    now_s = 1000.0
    slices = recent.slices("m")
    assert [each.age_s for each in slices[-2:]] == [BUCKET_S, 0.0]
    assert (slices[-1].num_requests, slices[-1].num_failed) == (1, 0)
    assert (slices[-2].num_requests, slices[-2].num_failed, slices[-2].num_tokens) == (2, 1, 4)
    assert sum(each.num_requests for each in slices) == 3
    assert sum(each.num_requests for each in recent.slices("other")) == 0
