"""The arithmetic of benchmarks and how their figures are written."""

from __future__ import annotations

import argparse
import math

import pytest

from tenantry_recipes.bench.contender import Run
from tenantry_recipes.bench.options import concurrencies
from tenantry_recipes.bench.spread import Spread, ratios
from tenantry_recipes.bench.table import megabytes, number, spread, table
from tenantry_recipes.bench.weights import WeightCounts


def test_a_spread_is_least_median_and_most() -> None:
    assert Spread.of([5.0, 1.0, 2.0]) == (1.0, 2.0, 5.0)
    assert Spread.of([4.0, 1.0]) == (1.0, 2.5, 4.0)


def test_a_spread_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Spread.of([])


def test_ratios_are_taken_pair_by_pair() -> None:
    # the machine was three times as fast in the second round: that is no spread of the ratio
    assert ratios([2.0, 6.0], [1.0, 3.0]) == (2.0, 2.0, 2.0)
    assert ratios([2.0, 6.0, 4.0], [1.0, 2.0, 4.0]) == (1.0, 2.0, 3.0)


def test_ratios_need_pairs() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratios([1.0, 2.0], [1.0])


# two requests: their prompts are read one after the other, then both get a token every 0.5 s
RUN = Run(token_s=((1.0, 2.0, 2.5, 3.0), (2.0, 2.5, 3.0, 3.5)))


def test_prefill_ends_with_the_last_first_token() -> None:
    assert RUN.prefill_s == 2.0
    assert RUN.total_s == 3.5


def test_tokens_per_second_are_of_the_whole_run_or_of_the_decoding_alone() -> None:
    assert RUN.tokens_per_s == 8 / 3.5
    assert RUN.decode_tokens_per_s == 5 / 1.5


def test_a_step_is_the_time_between_two_tokens_of_a_request_after_all_prompts_are_read() -> None:
    assert RUN.step_s == 0.5


COUNTS = WeightCounts(num_always=1000, num_expert=800, num_experts=8, num_experts_per_token=2)


def test_one_row_reads_the_experts_that_it_chooses() -> None:
    assert COUNTS.per_step(1) == 1000 + 800 * 2 / 8


def test_two_rows_read_an_expert_unless_both_leave_it_out() -> None:
    assert COUNTS.per_step(2) == pytest.approx(1000 + 800 * (1 - (6 / 8) ** 2))


def test_many_rows_read_every_expert() -> None:
    assert COUNTS.per_step(1000) == pytest.approx(1800)


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.05, "0.05"), (9.996, "10.00"), (12.34, "12.3"), (123.4, "123"), (45678.9, "45679")],
)
def test_numbers_have_three_digits_or_all_before_the_point(value: float, written: str) -> None:
    assert number(value) == written


def test_a_spread_is_written_with_its_median_first() -> None:
    assert spread(Spread(1.0, 2.0, 30.0)) == "2.00 (1.00 to 30.0)"


def test_bytes_are_written_in_megabytes() -> None:
    assert megabytes(4_200_000) == "4.20 MB"


def test_tables_are_aligned_markdown() -> None:
    text = table(("what", "much"), [("a", "1"), ("longer", "12345")])
    assert text.splitlines() == [
        "| what   |  much |",
        "| ------ | ----: |",
        "| a      |     1 |",
        "| longer | 12345 |",
    ]


def test_concurrencies_are_a_list_of_numbers() -> None:
    assert concurrencies("1,8,32") == (1, 8, 32)


@pytest.mark.parametrize("text", ["", "0", "1,,2", "a", "4,-1"])
def test_other_texts_are_no_concurrencies(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"such as 1,8,32"):
        concurrencies(text)


def test_a_step_time_needs_two_tokens_after_the_prompts() -> None:
    assert math.isclose(Run(token_s=((1.0, 1.5, 2.5),)).step_s, 0.75)
