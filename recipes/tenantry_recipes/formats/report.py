"""What was found, as Markdown for documentation and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tenantry_recipes.bench.table import table

from .findings import (
    LEVEL,
    MARGIN,
    Distance,
    Finding,
    Judgment,
    Noticed,
    Overall,
    findings_of,
    overall_of,
)
from .judging import EvaluationPlan
from .paired import CONFIDENCE, Pairs
from .results import Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that was found."""

    plan: EvaluationPlan
    judgments: tuple[Judgment, ...]
    controls: tuple[Noticed, ...]

    @property
    def overall(self) -> tuple[Overall, ...]:
        return overall_of(self.judgments)

    @property
    def is_passed(self) -> bool:
        """Every format is shown to lose less than the margin, by items that notice damage."""
        shown = all(judgment.is_shown for judgment in self.judgments)
        return shown and bool(self.controls) and all(each.is_noticed for each in self.controls)

    def markdown(self) -> str:
        parts = [self._judgment_table(), self._overall_table()]
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

    def _overall_table(self) -> str:
        header = (
            *("all tasks and lengths", "streams", "items"),
            *("reference", "candidate", "lost", "gained", "difference"),
            *("lower 95%", "KL per token", "same token"),
        )
        rows = [
            (
                f"{each.comparison.model}: {each.comparison.title}",
                str(each.streams),
                *_pair_cells(each.pairs),
                _points(each.lower),
                *_distance_cells(each.distance),
            )
            for each in self.overall
        ]
        return table(header, rows)

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
            "overall": [
                {
                    "model": each.comparison.model,
                    "formats": each.comparison.title,
                    "streams": each.streams,
                    **_pair_fields(each.pairs),
                    "lower_bound": each.lower,
                    **_distance_fields(each.distance),
                }
                for each in self.overall
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
    judgments, controls = findings_of(plan, results)
    return Report(plan=plan, judgments=judgments, controls=controls)


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
