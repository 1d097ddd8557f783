"""Whatever a tenant writes as a cron expression is one or is refused, and never anything else."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.workers.cron import parse_cron

PARTS = st.text(alphabet="0123456789*/-,LW#MONFRIjan ?\u0663", max_size=6)
FIELDS = st.lists(PARTS, min_size=4, max_size=6).map(" ".join)
MINUTES = st.integers(min_value=0, max_value=200_000_000)


@given(text=st.one_of(st.text(max_size=140), FIELDS), minute=MINUTES)
def test_any_text_is_an_expression_or_refused(text: str, minute: int) -> None:
    try:
        expression = parse_cron(text)
    except InvalidInput as refused:
        assert str(refused)
        return
    assert expression.is_due(minute) in (True, False)
    assert parse_cron(expression.text).is_due(minute) == expression.is_due(minute)


@given(first=st.integers(0, 59), last=st.integers(0, 59), step=st.integers(1, 59), minute=MINUTES)
def test_a_range_goes_on_past_the_hour(first: int, last: int, step: int, minute: int) -> None:
    due = parse_cron(f"{first}-{last}/{step} * * * *").is_due(minute)
    # counted by hand from the range's beginning
    distance, length = (minute - first) % 60, (last - first) % 60
    assert due == (distance <= length and distance % step == 0)
