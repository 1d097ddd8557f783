"""Pairing, resuming and what the report says, with models that answer from memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pytest

from support.nano import Oracle
from tenantry_recipes.formats.errors import ResultsMismatch
from tenantry_recipes.formats.items import ItemSource
from tenantry_recipes.formats.judging import Evaluation, EvaluationPlan
from tenantry_recipes.formats.report import Report, report_of
from tenantry_recipes.formats.results import Apart, Cell, Results, Subject, Verdict
from tenantry_recipes.formats.variants import RELEASED, Variant, comparisons_of
from tenantry_recipes.nano.models import CHECKPOINTS
from tenantry_recipes.nano.responder import Answer, Ask
from tenantry_recipes.nano.tasks.task import Example
from tenantry_runtime.text import load_text

KIMI, GLM = "kimi-k2.6-nano", "glm-5.2-nano"
CELL = Cell(KIMI, "lists", 512, 32)


class Silent:
    def __init__(self) -> None:
        self.begun: tuple[int, int] | None = None
        self.num_heard = 0

    def begin(self, num_steps: int, num_done: int) -> None:
        self.begun = (num_steps, num_done)

    def advance(self, num_steps: int, what: str) -> None:
        self.num_heard += num_steps


class Remembering(ItemSource):
    """Makes each item once for all tests."""

    @lru_cache(maxsize=1000)  # noqa: B019 # as long as the tests of this module
    def item(self, name: str, length: int, number: int) -> Example:
        return super().item(name, length, number)


class Faulty:
    """Knows all items and is wrong on every so many."""

    def __init__(self, items: ItemSource, count: int, *, wrong_every: int | None) -> None:
        examples = [items.item(CELL.task, CELL.length, number) for number in range(count)]
        self.num_asked = 0
        self._oracle = Oracle(examples)
        self._is_wrong = {
            str(example.messages[: max(example.targets)]): bool(
                wrong_every and number % wrong_every == 0
            )
            for number, example in enumerate(examples)
        }

    def respond(self, asks: Sequence[Ask]) -> list[Answer]:
        self.num_asked += len(asks)
        right = self._oracle.respond(asks)
        return [
            Answer(content="no idea") if self._is_wrong[str(ask.messages)] else answer
            for ask, answer in zip(asks, right, strict=True)
        ]


@pytest.fixture(scope="module")
def items() -> ItemSource:
    return Remembering(text=load_text(CHECKPOINTS / KIMI), seed=0)


def a_plan(**changes: object) -> EvaluationPlan:
    settings: dict[str, object] = {
        "models": (KIMI,),
        "tasks": ("lists",),
        "lengths": (512,),
        "streams": (32,),
        "num_items": 40,
        "num_divergences": 0,
        **changes,
    }
    return EvaluationPlan(**settings)  # type: ignore[arg-type] # the fields above


def an_evaluation(path: Path, plan: EvaluationPlan, heard: Silent | None = None) -> Evaluation:
    return Evaluation(plan=plan, results=Results(path), heard=heard or Silent(), work=path.parent)


def judged(path: Path, items: ItemSource, wrong_every: dict[str, int], *, num_items: int) -> Report:
    """Judge all variants by responders that are wrong on every so many items."""
    plan = a_plan(num_items=num_items)
    evaluation = an_evaluation(path, plan)
    for variant in plan.variants(KIMI):
        faulty = Faulty(items, num_items, wrong_every=wrong_every.get(variant.name))
        evaluation.judge_cell(faulty, CELL, variant, items)
    return report_of(plan, evaluation.results)


def test_items_that_were_judged_are_not_judged_again(tmp_path: Path, items: ItemSource) -> None:
    path = tmp_path / "results.jsonl"
    first = Faulty(items, 40, wrong_every=4)
    an_evaluation(path, a_plan(num_items=40)).judge_cell(first, CELL, RELEASED, items)
    more = Faulty(items, 60, wrong_every=None)
    again = an_evaluation(path, a_plan(num_items=60))
    again.judge_cell(more, CELL, RELEASED, items)

    assert (first.num_asked, more.num_asked) == (40, 20)
    known = again.results.verdicts(CELL, RELEASED.name)
    assert sorted(known) == list(range(60))
    assert [number for number in range(60) if not known[number]] == list(range(0, 40, 4))


def test_a_run_that_was_cut_in_the_middle_of_a_line_goes_on(
    tmp_path: Path, items: ItemSource
) -> None:
    path = tmp_path / "results.jsonl"
    an_evaluation(path, a_plan(num_items=5)).judge_cell(
        Faulty(items, 5, wrong_every=None), CELL, RELEASED, items
    )
    path.write_bytes(path.read_bytes()[:-7])
    again = Faulty(items, 5, wrong_every=None)
    an_evaluation(path, a_plan(num_items=5)).judge_cell(again, CELL, RELEASED, items)

    assert again.num_asked == 1
    assert sorted(Results(path).verdicts(CELL, RELEASED.name)) == [0, 1, 2, 3, 4]


def test_a_format_that_answers_alike_passes_and_a_damaged_one_is_noticed(
    tmp_path: Path, items: ItemSource
) -> None:
    report = judged(tmp_path / "results.jsonl", items, {"short rope": 10}, num_items=300)

    (judgment,) = report.judgments
    assert judgment.finding.pairs.difference == 0.0
    assert judgment.is_shown
    (control,) = report.controls
    assert control.is_noticed
    assert control.pairs.difference == pytest.approx(-0.1)
    assert report.is_passed


def test_a_suite_that_does_not_notice_damage_does_not_pass(
    tmp_path: Path, items: ItemSource
) -> None:
    report = judged(tmp_path / "results.jsonl", items, {}, num_items=300)

    assert all(judgment.is_shown for judgment in report.judgments)
    assert not report.is_passed
    assert any("too easy" in line for line in report.summary())


def test_a_format_that_loses_more_than_a_point_does_not_pass(
    tmp_path: Path, items: ItemSource
) -> None:
    losses = {"fp8 cache": 30, "short rope": 10}
    report = judged(tmp_path / "results.jsonl", items, losses, num_items=300)

    (judgment,) = report.judgments
    assert judgment.finding.pairs.num_lost == 10
    assert not judgment.is_shown
    assert not report.is_passed


def test_pairs_are_of_the_same_item_whatever_the_order_of_results(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    right = {"released": {0, 1, 2}, "fp8 cache": {2, 3}, "short rope": {0, 1, 2}}
    for variant, numbers in right.items():
        order = (3, 1, 2, 0) if variant == "fp8 cache" else (0, 1, 2, 3)
        results.add(
            Verdict(cell=CELL, variant=variant, number=n, is_right=n in numbers) for n in order
        )

    (judgment,) = report_of(a_plan(num_items=4), results).judgments
    found = judgment.finding.pairs
    assert (found.num_right, found.num_lost, found.num_gained) == (3, 2, 1)


def test_results_of_another_seed_or_of_other_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Results(path).require_subject(Subject(model=KIMI, seed=0, revision="a"))
    Results(path).require_subject(Subject(model=KIMI, seed=0, revision="a"))
    Results(path).require_subject(Subject(model=GLM, seed=0, revision="b"))

    with pytest.raises(ResultsMismatch, match="--seed 0, not 1"):
        Results(path).require_subject(Subject(model=KIMI, seed=1, revision="a"))
    with pytest.raises(ResultsMismatch, match="other weights of glm"):
        Results(path).require_subject(Subject(model=GLM, seed=0, revision="c"))


def test_a_file_that_holds_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("My notes.\n")

    with pytest.raises(ResultsMismatch, match="line 1"):
        Results(path)
    assert path.read_text() == "My notes.\n"


def test_each_variant_is_judged_once_though_several_are_compared_with_it() -> None:
    names = [variant.name for variant in a_plan(models=(GLM,)).variants(GLM)]

    assert names == ["released", "fp8 cache", "int4 experts", "short rope", "int3 experts"]


def test_both_caches_are_compared_on_both_models_and_int4_on_the_one_released_in_fp8() -> None:
    titles = {
        model: [each.title for each in comparisons_of(model) if not each.is_control]
        for model in (KIMI, GLM)
    }

    assert titles == {
        KIMI: ["FP8 cache against BF16"],
        GLM: ["FP8 cache against BF16", "INT4 experts against FP8"],
    }


def test_all_comparisons_are_corrected_together(tmp_path: Path) -> None:
    plan = a_plan(models=(GLM,), streams=(1, 32), num_items=300, has_controls=False)
    results = Results(tmp_path / "results.jsonl")
    for streams in plan.streams:
        (cell,) = plan.cells(GLM, streams)
        for variant in plan.variants(GLM):
            results.add(
                Verdict(cell=cell, variant=variant.name, number=n, is_right=True)
                for n in range(plan.num_items)
            )

    # 300 alike items alone give p = 0.041; of four tests none is below 0.05 then
    report = report_of(plan, results)
    assert len(report.judgments) == 4
    assert [judgment.p for judgment in report.judgments] == pytest.approx([0.163] * 4, abs=0.01)
    assert not any(judgment.is_shown for judgment in report.judgments)


def test_divergence_is_the_mean_over_all_tokens(tmp_path: Path) -> None:
    plan = a_plan(num_items=2, num_divergences=2, has_controls=False)
    results = Results(tmp_path / "results.jsonl")
    for variant in plan.variants(KIMI):
        results.add(
            Verdict(cell=CELL, variant=variant.name, number=n, is_right=True) for n in range(2)
        )
    for number, (num_tokens, total) in enumerate(((10, 0.1), (30, 0.5))):
        apart = Apart(
            cell=CELL,
            variant="fp8 cache",
            number=number,
            num_tokens=num_tokens,
            total_nats=total,
            most_nats=total / 2,
            num_same=num_tokens - 1,
        )
        results.add([apart])

    report = report_of(plan, results)
    distance = report.judgments[0].finding.distance
    assert distance is not None
    assert distance.mean_nats == pytest.approx(0.6 / 40)
    assert distance.same_share == pytest.approx(38 / 40)
    told = json.loads(report.json())["comparisons"][0]
    assert told["kl_per_token"] == pytest.approx(0.015)
    assert " 0.015 | 95.00% |" in " ".join(report.markdown().split())


def test_progress_counts_what_was_there_before(
    tmp_path: Path, items: ItemSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, heard = tmp_path / "results.jsonl", Silent()
    plan = a_plan(num_items=6)
    evaluation = an_evaluation(path, plan, heard)
    for variant in plan.variants(KIMI):
        evaluation.judge_cell(Faulty(items, 6, wrong_every=None), CELL, variant, items)
    assert heard.num_heard == 18

    def never(model: str, variant: Variant, *, work: Path, threads: int) -> None:
        raise AssertionError("nothing is left to judge")

    monkeypatch.setattr("tenantry_recipes.formats.judging.load_variant", never)
    again = Silent()
    an_evaluation(path, plan, again).run()
    assert again.begun == (18, 18)


def test_damage_that_only_distributions_show_is_told_and_does_not_pass(tmp_path: Path) -> None:
    plan = a_plan(num_items=30, num_divergences=30)
    results = Results(tmp_path / "results.jsonl")
    for variant in plan.variants(KIMI):
        results.add(
            Verdict(cell=CELL, variant=variant.name, number=n, is_right=True) for n in range(30)
        )
    for name, total_nats in (("fp8 cache", 0.1), ("short rope", 0.2)):
        results.add(
            Apart(
                cell=CELL,
                variant=name,
                number=n,
                num_tokens=10,
                total_nats=total_nats,
                most_nats=total_nats,
                num_same=10,
            )
            for n in range(30)
        )

    (control,) = report_of(plan, results).controls
    # thirty tosses of a coin, all alike
    assert control.p_further == pytest.approx(0.5**30)
    assert not control.is_noticed
    assert "in KL ONLY" in report_of(plan, results).markdown()
