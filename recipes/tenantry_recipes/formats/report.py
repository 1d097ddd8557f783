"""What was found, as Markdown for documentation and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tenantry_recipes.bench.table import table

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that was found."""

    plan: EvaluationPlan
    judgments: tuple[Judgment, ...]
    controls: tuple[Noticed, ...]

    @property
    def is_passed(self) -> bool:
        """Every format is shown to lose less than the margin, by items that notice damage."""
        shown = all(judgment.is_shown for judgment in self.judgments)
        return shown and bool(self.controls) and all(each.is_noticed for each in self.controls)

    def markdown(self) -> str:
        parts = [self._judgment_table()]
        if self.controls:
            parts.append(self._control_table())
        return "\n\n".join([*parts, "\n".join(self.summary())])

    def summary(self) -> list[str]:
        """Say what the tables come to."""
        num_shown = sum(judgment.is_shown for judgment in self.judgments)
        lines = [
            f"{num_shown} of {len(self.judgments)} comparisons show a loss of less than "
            f"{100 * MARGIN:.1f} points, at {CONFIDENCE:.0%} for all together."
        ]
        unseen = [
            f"{each.comparison.model}, {each.comparison.title}, streams {each.streams}"
            for each in self.controls
            if not each.is_noticed
        ]
        if not self.controls:
            lines.append("No control was run: nothing says that these items notice damage.")
        elif unseen:
            lines.append(
                f"No fewer right answers, significantly: {'; '.join(unseen)}. "
                "These items are too few, or too easy, to notice that damage."
            )
        else:
            lines.append("Every damaged format came out significantly worse.")
        return lines

    def _judgment_table(self) -> str:
        header = (
            *("model and formats", "task", "tokens", "streams", "items"),
            *("reference", "candidate", "lost", "gained", "difference"),
            *(
                "lower 95%",
                "items that count as one",
                "p (Holm)",
                "KL per token",
                "same token",
                "loss < 1 point",
            ),
        )
        return table(header, [self._judgment_cells(each) for each in self.judgments])

    @staticmethod
    def _judgment_cells(judgment: Judgment) -> tuple[str, ...]:
        finding = judgment.finding
        cell, comparison = finding.cell, finding.comparison
        return (
            f"{comparison.model}: {comparison.title}",
            *(cell.task, str(cell.length), str(cell.streams)),
            *_pair_cells(finding.pairs),
            _points(finding.lower),
            f"{finding.design:.2f}",
            _p(judgment.p),
            *_distance_cells(finding.distance),
            "shown" if judgment.is_shown else "not shown",
        )

    def _control_table(self) -> str:
        header = (
            *("damaged formats", "streams", "items"),
            *("reference", "candidate", "lost", "gained", "difference"),
            *("p (Holm)", "KL per token", "same token", "p of KL (Holm)", "worse"),
        )
        rows = [
            (
                f"{each.comparison.model}: {each.comparison.title}",
                str(each.streams),
                *_pair_cells(each.pairs),
                _p(each.p),
                *_distance_cells(each.distance),
                "-" if each.p_further is None else _p(each.p_further),
                _where_noticed(each),
            )
            for each in self.controls
        ]
        return table(header, rows)

    def json(self) -> str:
        """Return one JSON object; shares are fractions, KL in nats."""
        fields = {
            "passed": self.is_passed,
            "seed": self.plan.seed,
            "margin": MARGIN,
            "confidence": CONFIDENCE,
            "comparisons": [
                {
                    **_finding_fields(each.finding),
                    "p_adjusted": each.p,
                    "shown": each.is_shown,
                }
                for each in self.judgments
            ],
            "controls": [
                {
                    "model": each.comparison.model,
                    "formats": each.comparison.title,
                    "streams": each.streams,
                    **_pair_fields(each.pairs),
                    "p_adjusted": each.p,
                    "noticed": each.is_noticed,
                    "p_kl_adjusted": each.p_further,
                    **_distance_fields(each.distance),
                    "cells": [_finding_fields(finding) for finding in each.cells],
                }
                for each in self.controls
            ],
        }
        return json.dumps(fields, indent=2)


def report_of(plan: EvaluationPlan, results: Results) -> Report:
    """Compare what was judged."""
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
    return Report(
        plan=plan,
        judgments=tuple(
            Judgment(finding=finding, p=p) for finding, p in zip(judged, adjusted, strict=True)
        ),
        controls=tuple(
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
        ),
    )


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


def _where_noticed(control: Noticed) -> str:
    if control.is_noticed:
        return "in answers"
    is_further = control.p_further is not None and control.p_further < LEVEL
    return "in KL ONLY" if is_further else "NOT NOTICED"


def _pair_cells(pairs: Pairs) -> tuple[str, ...]:
    return (
        str(pairs.num_items),
        f"{pairs.reference:.1%}",
        f"{pairs.candidate:.1%}",
        str(pairs.num_lost),
        str(pairs.num_gained),
        _points(pairs.difference),
    )


def _distance_cells(distance: Distance | None) -> tuple[str, str]:
    if distance is None:
        return "-", "-"
    return f"{distance.mean_nats:.2g}", f"{distance.same_share:.2%}"


def _points(share: float) -> str:
    return f"{100 * share:+.2f}"


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def _finding_fields(finding: Finding) -> dict[str, Any]:
    # Any: JSON
    return {
        "model": finding.comparison.model,
        "formats": finding.comparison.title,
        "task": finding.cell.task,
        "length": finding.cell.length,
        "streams": finding.cell.streams,
        **_pair_fields(finding.pairs),
        "num_contexts": len(finding.contexts),
        "design_effect": finding.design,
        "lower_bound": finding.lower,
        **_distance_fields(finding.distance),
    }


def _pair_fields(pairs: Pairs) -> dict[str, Any]:
    return {
        "num_items": pairs.num_items,
        "reference": pairs.reference,
        "candidate": pairs.candidate,
        "num_lost": pairs.num_lost,
        "num_gained": pairs.num_gained,
        "difference": pairs.difference,
    }


def _distance_fields(distance: Distance | None) -> dict[str, Any]:
    if distance is None:
        return {}
    return {
        "num_tokens": distance.num_tokens,
        "kl_per_token": distance.mean_nats,
        "most_kl": distance.most_nats,
        "same_token": distance.same_share,
    }
