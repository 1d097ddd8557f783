"""Pairing, resuming and what the report says, with models that answer from memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pytest

from support.nano import Oracle
from tenantry_recipes.formats.contexts import QUESTIONS
from tenantry_recipes.formats.errors import ResultsMismatch
from tenantry_recipes.formats.items import ItemSource
from tenantry_recipes.formats.judging import Evaluation, EvaluationPlan, asking_order
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
    """Makes each context once for all tests."""

    @lru_cache(maxsize=1000)  # noqa: B019 # as long as the tests of this module
    def context(self, name: str, length: int, number: int) -> tuple[Example, ...]:
        return super().context(name, length, number)


class Faulty:
    """Knows all items and is wrong on every so many."""

    def __init__(self, items: ItemSource, count: int, *, wrong_every: int | None) -> None:
        examples = list(items.items(CELL.task, CELL.length, range(count)).values())
        self.asked: list[tuple[int, int]] = []
        """The streams and number of each item, in order."""
        self._numbers = {
            str(example.messages[: max(example.targets)]): number
            for number, example in enumerate(examples)
        }
        self._oracle = Oracle(examples)
        self._is_wrong = {
            str(example.messages[: max(example.targets)]): bool(
                wrong_every and number % wrong_every == 0
            )
            for number, example in enumerate(examples)
        }

    @property
    def num_asked(self) -> int:
        return len(self.asked)

    def respond(self, asks: Sequence[Ask], *, streams: int) -> list[Answer]:
        self.asked += [(streams, self._numbers[str(ask.messages)]) for ask in asks]
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


def a_subject(
    model: str, *, seed: int = 0, revision: str = "a", questions: int = QUESTIONS
) -> Subject:
    return Subject(model=model, seed=seed, revision=revision, questions=questions)


def an_evaluation(path: Path, plan: EvaluationPlan, heard: Silent | None = None) -> Evaluation:
    return Evaluation(plan=plan, results=Results(path), heard=heard or Silent(), work=path.parent)


def judged(path: Path, items: ItemSource, wrong_every: dict[str, int], *, num_items: int) -> Report:
    """Judge all variants by responders that are wrong on every so many items."""
    plan = a_plan(num_items=num_items)
    evaluation = an_evaluation(path, plan)
    for variant in plan.variants(KIMI):
        faulty = Faulty(items, num_items, wrong_every=wrong_every.get(variant.name))
        evaluation.judge_block({variant: faulty}, [CELL], range(num_items), items)
    return report_of(plan, evaluation.results)


def test_items_that_were_judged_are_not_judged_again(tmp_path: Path, items: ItemSource) -> None:
    path = tmp_path / "results.jsonl"
    first = Faulty(items, 40, wrong_every=4)
    an_evaluation(path, a_plan(num_items=40)).judge_block(
        {RELEASED: first}, [CELL], range(40), items
    )
    more = Faulty(items, 60, wrong_every=None)
    again = an_evaluation(path, a_plan(num_items=60))
    again.judge_block({RELEASED: more}, [CELL], range(60), items)

    assert (first.num_asked, more.num_asked) == (40, 20)
    known = again.results.verdicts(CELL, RELEASED.name)
    assert sorted(known) == list(range(60))
    assert [number for number in range(60) if not known[number]] == list(range(0, 40, 4))


def test_a_run_that_was_cut_in_the_middle_of_a_line_goes_on(
    tmp_path: Path, items: ItemSource
) -> None:
    path = tmp_path / "results.jsonl"
    an_evaluation(path, a_plan(num_items=5)).judge_block(
        {RELEASED: Faulty(items, 5, wrong_every=None)}, [CELL], range(5), items
    )
    path.write_bytes(path.read_bytes()[:-7])
    again = Faulty(items, 5, wrong_every=None)
    an_evaluation(path, a_plan(num_items=5)).judge_block({RELEASED: again}, [CELL], range(5), items)

    assert again.num_asked == 1
    assert sorted(Results(path).verdicts(CELL, RELEASED.name)) == [0, 1, 2, 3, 4]


def test_a_format_that_answers_alike_passes_and_a_damaged_one_is_noticed(
    tmp_path: Path, items: ItemSource
) -> None:
    report = judged(tmp_path / "results.jsonl", items, {"short rope": 10}, num_items=600)

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
    report = judged(tmp_path / "results.jsonl", items, {}, num_items=600)

    assert all(judgment.is_shown for judgment in report.judgments)
    assert not report.is_passed
    assert any("too easy" in line for line in report.summary())


def test_a_format_that_loses_more_than_a_point_does_not_pass(
    tmp_path: Path, items: ItemSource
) -> None:
    losses = {"fp8 cache": 30, "short rope": 10}
    report = judged(tmp_path / "results.jsonl", items, losses, num_items=600)

    (judgment,) = report.judgments
    assert judgment.finding.pairs.num_lost == 20
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
    Results(path).require_subject(a_subject(KIMI, seed=0, revision="a"))
    Results(path).require_subject(a_subject(KIMI, seed=0, revision="a"))
    Results(path).require_subject(a_subject(GLM, seed=0, revision="b"))

    with pytest.raises(ResultsMismatch, match="--seed 0, not 1"):
        Results(path).require_subject(a_subject(KIMI, seed=1, revision="a"))
    with pytest.raises(ResultsMismatch, match="contexts of 16 items, not 8"):
        Results(path).require_subject(a_subject(KIMI, questions=8))
    with pytest.raises(ResultsMismatch, match="other weights of glm"):
        Results(path).require_subject(a_subject(GLM, seed=0, revision="c"))


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
    plan = a_plan(models=(GLM,), streams=(1, 32), num_items=600, has_controls=False)
    results = Results(tmp_path / "results.jsonl")
    for streams in plan.streams:
        (cell,) = plan.cells(GLM, streams)
        for variant in plan.variants(GLM):
            results.add(
                Verdict(cell=cell, variant=variant.name, number=n, is_right=True)
                for n in range(plan.num_items)
            )

    # of alike items, two count as one: 600 give p = 0.041; of four tests none is below 0.05 then
    report = report_of(plan, results)
    assert len(report.judgments) == 4
    assert [judgment.p for judgment in report.judgments] == pytest.approx([0.163] * 4, abs=0.01)
    assert not any(judgment.is_shown for judgment in report.judgments)


def test_all_tasks_and_lengths_together_bound_a_loss_more_narrowly(tmp_path: Path) -> None:
    plan = a_plan(lengths=(512, 1024), num_items=600, has_controls=False)
    results = Results(tmp_path / "results.jsonl")
    for cell in plan.cells(KIMI, 32):
        for variant in plan.variants(KIMI):
            results.add(
                Verdict(cell=cell, variant=variant.name, number=n, is_right=n > 0)
                for n in range(600)
            )

    report = report_of(plan, results)
    (overall,) = report.overall
    assert (overall.streams, overall.pairs.num_items, overall.pairs.num_right) == (32, 1200, 1198)
    # Tango's bound of items that never differ is -z^2 / (n + z^2); of alike ones, two count as one
    assert overall.lower == pytest.approx(-(1.6449**2) / (1200 / 2 + 1.6449**2), rel=1e-3)
    assert overall.lower > max(judgment.finding.lower for judgment in report.judgments)
    (told,) = json.loads(report.json())["overall"]
    assert told["lower_bound"] == overall.lower
    assert "1200 | 99.8% | 99.8% | 0 | 0 | +0.00 | -0.45 |" in " ".join(report.markdown().split())


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
        faulty = Faulty(items, 6, wrong_every=None)
        evaluation.judge_block({variant: faulty}, [CELL], range(6), items)
    assert heard.num_heard == 18

    def never(model: str, variant: Variant, *, work: Path, threads: int) -> None:
        raise AssertionError("nothing is left to judge")

    monkeypatch.setattr("tenantry_recipes.formats.judging.load_variant", never)
    again = Silent()
    an_evaluation(path, plan, again).run()
    assert again.begun == (18, 18)


def test_damage_that_only_distributions_show_is_told_and_does_not_pass(tmp_path: Path) -> None:
    plan = a_plan(num_items=160, num_divergences=160)
    results = Results(tmp_path / "results.jsonl")
    for variant in plan.variants(KIMI):
        results.add(
            Verdict(cell=CELL, variant=variant.name, number=n, is_right=True) for n in range(160)
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
            for n in range(160)
        )

    (control,) = report_of(plan, results).controls
    # ten tosses of a coin, one for each context
    assert control.p_further == pytest.approx(0.5**10)
    assert not control.is_noticed
    assert "in KL ONLY" in report_of(plan, results).markdown()


def test_the_first_item_of_each_context_is_asked_before_all_others() -> None:
    numbers = [*range(3 * QUESTIONS - 2)]
    order = asking_order(512, reversed(numbers))

    assert order[:3] == [0, QUESTIONS, 2 * QUESTIONS]
    assert sorted(order) == numbers
    assert order[3:] == [number for number in numbers if number % QUESTIONS]


def test_a_block_is_judged_at_one_stream_first_and_never_twice(
    tmp_path: Path, items: ItemSource
) -> None:
    plan = a_plan(streams=(32, 1), num_items=20)
    evaluation = an_evaluation(tmp_path / "results.jsonl", plan)
    cells = [CELL._replace(streams=streams) for streams in (1, 32)]
    variants = plan.variants(KIMI)
    judges = {variant: Faulty(items, 20, wrong_every=None) for variant in variants}
    for _ in range(2):
        evaluation.judge_block(judges, cells, range(20), items)

    served = [(streams, number) for streams in (1, 32) for number in asking_order(512, range(20))]
    assert [judges[variant].asked for variant in variants] == [served, served, served[20:]]


def test_controls_are_judged_at_the_most_streams_alone() -> None:
    plan = a_plan(models=(GLM,), streams=(1, 8, 32))

    assert [each.name for each in plan.variants(GLM, 8)] == [
        "released",
        "fp8 cache",
        "int4 experts",
    ]
    assert plan.variants(GLM, 32) == plan.variants(GLM)
    assert {plan.streams_of(each) for each in plan.comparisons()} == {(1, 8, 32), (32,)}


def test_items_that_are_lost_together_count_as_fewer(tmp_path: Path) -> None:
    plan = a_plan(num_items=30 * QUESTIONS, has_controls=False)
    bounds = []
    for name, lost in (("spread", range(0, 160, 16)), ("together", range(10))):
        results = Results(tmp_path / name)
        results.add(
            Verdict(cell=CELL, variant="released", number=n, is_right=True)
            for n in range(plan.num_items)
        )
        results.add(
            Verdict(cell=CELL, variant="fp8 cache", number=n, is_right=n not in lost)
            for n in range(plan.num_items)
        )
        (judgment,) = report_of(plan, results).judgments
        assert judgment.finding.pairs.num_lost == 10
        bounds.append((judgment.finding.design, judgment.finding.lower))

    (spread, high), (together, low) = bounds
    assert 1.0 <= spread < 1.3
    # ten of one context: the square of their number over their number
    assert together == pytest.approx(10, rel=0.1)
    assert low < high < 0
