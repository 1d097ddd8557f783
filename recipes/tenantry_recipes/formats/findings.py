"""What comparisons come to: losses against the margin, and damage that was noticed or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .contexts import by_context
from .judging import EvaluationPlan
from .paired import (
    CONFIDENCE,
    Pairs,
    Variances,
    design_effect,
    holm,
    lower_bound,
    p_not_inferior,
    p_worse,
)
from .results import Cell, Results
from .variants import Comparison

MARGIN = 0.01
"""A loss of right answers that would be too much."""
LEVEL = 1 - CONFIDENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """Of next-token distributions, over the tokens of many answers."""

    num_tokens: int
    mean_nats: float
    most_nats: float
    same_share: float
    """Of tokens that both formats would choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One comparison in one cell."""

    comparison: Comparison
    cell: Cell
    contexts: tuple[Pairs, ...]
    distance: Distance | None
    design: float = 1.0
    """How many items count as one, since those of a context may differ together."""

    @property
    def pairs(self) -> Pairs:
        return Pairs.total(self.contexts)

    @property
    def lower(self) -> float:
        return lower_bound(self.pairs, self.design)

    @property
    def p(self) -> float:
        """Return the chance of this if the loss were the margin."""
        return p_not_inferior(self.pairs, MARGIN, self.design)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """Whether a format loses less than the margin in a cell, all such tests together."""

    finding: Finding
    p: float
    """Adjusted."""

    @property
    def is_shown(self) -> bool:
        return self.p < LEVEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Overall:
    """One comparison over all tasks and lengths: a smaller loss shows there than in any cell."""

    comparison: Comparison
    streams: int
    pairs: Pairs
    lower: float
    distance: Distance | None

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> Overall:
        """Add up findings of one comparison at one number of streams."""
        contexts = [context for each in findings for context in each.contexts]
        together = Variances.total(Variances.of(each.contexts) for each in findings)
        pairs = Pairs.total(contexts)
        return cls(
            comparison=findings[0].comparison,
            streams=findings[0].cell.streams,
            pairs=pairs,
            lower=lower_bound(pairs, max(1.0, together.ratio)),
            distance=_together([each.distance for each in findings]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """Whether a damaged format came out worse, over all tasks and lengths."""

    comparison: Comparison
    streams: int
    pairs: Pairs
    p: float
    """Adjusted."""
    p_further: float | None
    """Of the same items' KL, which is larger than that of the format undamaged; adjusted."""
    distance: Distance | None
    cells: tuple[Finding, ...]

    @property
    def is_noticed(self) -> bool:
        return self.p < LEVEL


def findings_of(
    plan: EvaluationPlan, results: Results
) -> tuple[tuple[Judgment, ...], tuple[Noticed, ...]]:
    """Compare what was judged: formats by the margin, and damaged ones by whether that is noticed."""
    judged, controls = [], []
    for comparison in plan.comparisons():
        found = _findings(comparison, plan, results)
        if not comparison.is_control:
            judged += [finding for findings in found.values() for finding in findings]
            continue
        controls += [(comparison, streams, findings) for streams, findings in found.items()]
    adjusted = holm([finding.p for finding in judged])
    totals = [Pairs.total([each.pairs for each in findings]) for *_, findings in controls]
    noticed = holm(
        [
            p_worse(context for finding in findings for context in finding.contexts)
            for *_, findings in controls
        ]
    )
    further = holm(
        [
            p_worse(_further(comparison, [each.cell for each in findings], plan, results))
            for comparison, _, findings in controls
        ]
    )
    judgments = tuple(
        Judgment(finding=finding, p=p) for finding, p in zip(judged, adjusted, strict=True)
    )
    return judgments, tuple(
        Noticed(
            comparison=comparison,
            streams=streams,
            pairs=pairs,
            p=p,
            p_further=p_of_kl if plan.num_divergences else None,
            distance=_together([each.distance for each in findings]),
            cells=findings,
        )
        for (comparison, streams, findings), pairs, p, p_of_kl in zip(
            controls, totals, noticed, further, strict=True
        )
    )


def overall_of(judgments: Sequence[Judgment]) -> tuple[Overall, ...]:
    """Add up judgments of each comparison and number of streams."""
    grouped: dict[tuple[Comparison, int], list[Finding]] = {}
    for finding in (judgment.finding for judgment in judgments):
        grouped.setdefault((finding.comparison, finding.cell.streams), []).append(finding)
    return tuple(Overall.of(findings) for findings in grouped.values())


def _findings(
    comparison: Comparison, plan: EvaluationPlan, results: Results
) -> dict[int, tuple[Finding, ...]]:
    """Compare two variants in all cells, by their streams; all have a say in the design effects."""
    found = {
        streams: [
            _finding(comparison, cell, plan, results)
            for cell in plan.cells(comparison.model, streams)
        ]
        for streams in plan.streams_of(comparison)
    }
    own = {
        finding.cell: Variances.of(finding.contexts)
        for findings in found.values()
        for finding in findings
    }
    together = Variances.total(own.values())
    return {
        streams: tuple(
            replace(each, design=design_effect(own[each.cell], together)) for each in findings
        )
        for streams, findings in found.items()
    }


def _finding(comparison: Comparison, cell: Cell, plan: EvaluationPlan, results: Results) -> Finding:
    reference = results.verdicts(cell, comparison.reference.name)
    candidate = results.verdicts(cell, comparison.candidate.name)
    apart = results.apart(cell, comparison.candidate.name)
    compared = [apart[number] for number in range(plan.num_divergences)]
    num_tokens = sum(each.num_tokens for each in compared)
    verdicts = {n: (reference[n], candidate[n]) for n in range(plan.num_items)}
    return Finding(
        comparison=comparison,
        cell=cell,
        contexts=_by_context(cell, verdicts),
        distance=Distance(
            num_tokens=num_tokens,
            mean_nats=sum(each.total_nats for each in compared) / num_tokens,
            most_nats=max(each.most_nats for each in compared),
            same_share=sum(each.num_same for each in compared) / num_tokens,
        )
        if compared
        else None,
    )


def _together(distances: Sequence[Distance | None]) -> Distance | None:
    known = [each for each in distances if each is not None]
    num_tokens = sum(each.num_tokens for each in known)
    if not known:
        return None
    return Distance(
        num_tokens=num_tokens,
        mean_nats=sum(each.mean_nats * each.num_tokens for each in known) / num_tokens,
        most_nats=max(each.most_nats for each in known),
        same_share=sum(each.same_share * each.num_tokens for each in known) / num_tokens,
    )


def _by_context(cell: Cell, verdicts: Mapping[int, tuple[bool, bool]]) -> tuple[Pairs, ...]:
    """Count pairs of verdicts by the contexts of their items' numbers."""
    return tuple(
        Pairs.of(verdicts[number] for number in numbers)
        for numbers in by_context(cell.length, verdicts).values()
    )


def _further(
    comparison: Comparison, cells: Sequence[Cell], plan: EvaluationPlan, results: Results
) -> list[Pairs]:
    """Count, in each context, where damage moves the distribution further, as losses, or less far."""
    undamaged = comparison.undamaged
    assert undamaged is not None
    contexts: list[Pairs] = []
    for cell in cells:
        sound, damaged = (
            results.apart(cell, variant.name) for variant in (undamaged, comparison.candidate)
        )
        verdicts = {}
        for number in range(plan.num_divergences):
            less, more = sound[number].total_nats, damaged[number].total_nats
            verdicts[number] = (less < more, more < less)
        contexts += _by_context(cell, verdicts)
    return contexts
