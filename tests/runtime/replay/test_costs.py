"""What a step takes, and where the numbers may come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenantry_runtime.cache.owners import OwnerSlots
from tenantry_runtime.core import Sampling
from tenantry_runtime.engine.plan import Entry, StepPlan
from tenantry_runtime.engine.sequence import Sequence
from tenantry_runtime.pool.messages import Submit
from tenantry_runtime.replay.costs import Costs, StepCost, read_costs


def a_plan(*pieces: tuple[int, int]) -> StepPlan:
    """Return a step of pieces of so many tokens from such a position on."""
    submit = Submit(
        request_id="r",
        tenant="t",
        model="m",
        token_ids=[0],
        sampling=Sampling(seed=0),
        stop_token_ids=(),
        max_tokens=1,
    )
    sequence = Sequence(submit, arrival=0, owners=OwnerSlots(), queued_s=0.0)
    entries = tuple(Entry(sequence, [0] * length, start, True) for length, start in pieces)
    return StepPlan(step=1, phase="prefill", entries=entries)


def test_a_step_costs_its_tokens_and_what_they_read() -> None:
    cost = StepCost(fixed_s=100.0, token_s=10.0, read_s=1.0)
    # the tokens at 5, 6 and 7 read 6, 7 and 8; a decode row at 9 reads 10
    assert cost.seconds(a_plan((3, 5), (1, 9))) == 100 + 10 * 4 + (6 + 7 + 8) + 10


def test_the_defaults_give_back_the_figures_they_are_from() -> None:
    costs = Costs()
    a_chunk = costs.prefill.fixed_s + 8192 * costs.prefill.token_s
    assert 8192 / a_chunk == pytest.approx(18_270, rel=0.01)
    alone = costs.decode.seconds(a_plan((1, 0)))
    assert 1 / alone == pytest.approx(137, rel=0.01)
    crowded = costs.decode.seconds(a_plan(*[(1, 8700)] * 64))
    assert 64 / crowded == pytest.approx(2192, rel=0.01)


@pytest.mark.parametrize("scale", [1, 2, 8])
def test_a_scaled_step_takes_as_long_as_what_it_stands_for(scale: int) -> None:
    cost = StepCost(fixed_s=0.5, token_s=0.1, read_s=1e-3)
    scaled = Costs(prefill=cost, decode=cost).scaled(scale)
    whole = cost.seconds(a_plan((800, 1600)))
    # the diagonal of what a piece reads of itself is not divided evenly
    assert scaled.prefill.seconds(a_plan((800 // scale, 1600 // scale))) == pytest.approx(
        whole, rel=0.01
    )
    steps = sum(cost.seconds(a_plan((1, 1600 + i))) for i in range(scale))
    assert scaled.decode.seconds(a_plan((1, 1600 // scale))) == pytest.approx(steps, rel=0.01)


def test_a_file_replaces_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "costs.toml"
    file.write_text("[prefill]\ntoken_s = 1\n")
    costs = read_costs(file)
    assert costs.prefill == StepCost(
        fixed_s=Costs().prefill.fixed_s, token_s=1.0, read_s=Costs().prefill.read_s
    )
    assert costs.decode == Costs().decode


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[prefil]\n", "prefil: no such table"),
        ("prefill = 3\n", "prefill: must be a table"),
        ("[decode]\nrow_s = 1\n", "decode.row_s: no such key"),
        ("[decode]\ntoken_s = 'x'\n", "decode: "),
        ("[decode]\ntoken_s = -1\n", "token_s is -1.0"),
        ("[decode\n", "costs.toml: "),
    ],
)
def test_a_file_with_a_mistake_is_refused_by_name(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "costs.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"costs\.toml") as caught:
        read_costs(file)
    assert problem in str(caught.value)
