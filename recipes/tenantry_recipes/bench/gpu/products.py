"""Cases of the expert, FP8 and router products."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch.nn.functional import linear

from tenantry_kernels.experts import ExpertMlp, route_to_experts, swiglu
from tenantry_kernels.gpu.dense_experts import dense_experts
from tenantry_kernels.gpu.fp8_experts import Fp8Stack, fp8_experts
from tenantry_kernels.gpu.fp8_product import Fp8Stored, fp8_product, fp8_product_reference
from tenantry_kernels.gpu.int4_experts import (
    GROUP,
    WORD,
    Int4Experts,
    Int4Stack,
    int4_experts,
    int4_experts_reference,
)
from tenantry_kernels.gpu.router import route

from . import work
from .case import Case, Source, Trial, relative_error
from .shapes import Load, ModelShape

INT4, FP8, FP8_EXPERTS, ROUTER = "int4_experts", "fp8_product", "experts as FP8", "router"
DENSE, GROUPED_FP8 = "dense_experts", "fp8_experts"
INT4_GOAL = 0.75

# of the largest value: inputs, inner values and results are rounded to BF16
_TOLERANCE = 2e-2
_ROUTER_TOLERANCE = 1e-4
_SCALING = 2.5


def product_cases(model: ModelShape, load: Load) -> Iterator[Case]:
    for rows in load.rows:
        yield _int4_case(model, rows)
    for rows in load.rows:
        yield _dense_case(model, rows)
    for rows in load.rows:
        yield _grouped_fp8_case(model, rows)
    for rows in load.rows:
        yield _router_case(model, rows)
    for name, (outputs, columns) in model.fp8_matrices.items():
        for rows in load.rows:
            yield _fp8_case(model, name, outputs, columns, rows)
    if model.fp8_matrices:
        yield _fp8_experts_case(model)


def an_fp8_matrix(source: Source, num_outputs: int, num_columns: int) -> Fp8Stored:
    weight = source.normal(num_outputs, num_columns).to(torch.float8_e4m3fn)
    blocks = (-(-num_outputs // 128), -(-num_columns // 128))
    scale = source.normal(*blocks, dtype=torch.float32).abs() * num_columns**-0.5
    return Fp8Stored(weight, scale)


def _int4_case(model: ModelShape, rows: int) -> Case:
    def stack(source: Source, outputs: int, columns: int) -> Int4Stack:
        words = (model.num_experts, outputs, columns // WORD)
        groups = (model.num_experts, outputs, columns // GROUP)
        # 4.6 is the root mean square of -8..7
        scale = source.normal(*groups, size=columns**-0.5 / 4.6)
        return Int4Stack(source.integers(-(1 << 31), 1 << 31, *words, dtype=torch.int32), scale)

    def build(source: Source) -> Trial:
        weights = Int4Experts(
            stack(source, 2 * model.inner, model.hidden), stack(source, model.hidden, model.inner)
        )
        x = source.normal(rows, model.hidden)
        chosen = source.choices(rows, model.num_choices, model.num_experts).int()
        factor = source.normal(rows, model.num_choices, dtype=torch.float32).softmax(-1)

        def run() -> torch.Tensor:
            return int4_experts(x, chosen, factor, weights)

        return Trial(
            run=run,
            error=lambda: relative_error(run(), int4_experts_reference(x, chosen, factor, weights)),
            tolerance=_TOLERANCE,
            work=work.int4_experts(
                rows, chosen.numel(), chosen.unique().numel(), model.hidden, model.inner
            ),
        )

    return Case(op=INT4, model=model.name, shape=f"{rows} rows", build=build, goal=INT4_GOAL)


def _dense_case(model: ModelShape, rows: int) -> Case:
    def build(source: Source) -> Trial:
        num_experts, inner, hidden = model.num_experts, model.inner, model.hidden
        gate_up = source.normal(num_experts, 2 * inner, hidden, size=hidden**-0.5)
        down = source.normal(num_experts, hidden, inner, size=inner**-0.5)

        def expert(number: int, rows_TH: torch.Tensor) -> torch.Tensor:
            return linear(swiglu(linear(rows_TH, gate_up[number].float())), down[number].float())

        return _experts_trial(
            source,
            model,
            rows,
            apply=lambda x, chosen, factor: dense_experts(x, chosen, factor, gate_up, down),
            expert=expert,
            work_of=work.dense_experts,
        )

    return Case(op=DENSE, model=model.name, shape=f"{rows} rows", build=build)


def _grouped_fp8_case(model: ModelShape, rows: int) -> Case:
    num_experts, inner, hidden = model.num_experts, model.inner, model.hidden

    def stack(source: Source, parts: int, outputs: int, columns: int) -> Fp8Stack:
        weight = source.normal(num_experts, parts, outputs, columns).to(torch.float8_e4m3fn)
        blocks = (num_experts, parts, -(-outputs // 128), -(-columns // 128))
        scale = source.normal(*blocks, dtype=torch.float32).abs() * columns**-0.5
        return Fp8Stack(weight, scale)

    def build(source: Source) -> Trial:
        gate_up, down = stack(source, 2, inner, hidden), stack(source, 1, hidden, inner)

        def expert(number: int, rows_TH: torch.Tensor) -> torch.Tensor:
            gate, up = (_matrix(gate_up, number, part) for part in (0, 1))
            inner_TI = torch.cat([fp8_product_reference(rows_TH, each) for each in (gate, up)], -1)
            return fp8_product_reference(swiglu(inner_TI), _matrix(down, number, 0))

        return _experts_trial(
            source,
            model,
            rows,
            apply=lambda x, chosen, factor: fp8_experts(x, chosen, factor, gate_up, down),
            expert=expert,
            work_of=work.fp8_experts,
        )

    return Case(op=GROUPED_FP8, model=model.name, shape=f"{rows} rows", build=build)


def _experts_trial(
    source: Source,
    model: ModelShape,
    rows: int,
    *,
    apply: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
    expert: ExpertMlp,
    work_of: Callable[[int, int, int, int, int], work.Work],
) -> Trial:
    """Compare all experts in one call with a loop over them."""
    x = source.normal(rows, model.hidden)
    chosen = source.choices(rows, model.num_choices, model.num_experts)
    factor = source.normal(rows, model.num_choices, dtype=torch.float32).softmax(-1)

    def run() -> torch.Tensor:
        return apply(x, chosen, factor)

    def error() -> float:
        expected = route_to_experts(x.float(), chosen, factor, model.num_experts, expert)
        return relative_error(run(), expected)

    num_distinct = chosen.unique().numel()
    return Trial(
        run=run,
        error=error,
        tolerance=_TOLERANCE,
        work=work_of(rows, chosen.numel(), num_distinct, model.hidden, model.inner),
    )


def _matrix(stack: Fp8Stack, expert: int, part: int) -> Fp8Stored:
    return Fp8Stored(stack.weight[expert, part], stack.scale_inv[expert, part])


def _fp8_case(model: ModelShape, name: str, outputs: int, columns: int, rows: int) -> Case:
    def build(source: Source) -> Trial:
        matrix, x = an_fp8_matrix(source, outputs, columns), source.normal(rows, columns)
        return Trial(
            run=lambda: fp8_product(x, matrix),
            error=lambda: relative_error(fp8_product(x, matrix), fp8_product_reference(x, matrix)),
            tolerance=_TOLERANCE,
            work=work.fp8_product(rows, outputs, columns),
        )

    return Case(op=FP8, model=model.name, shape=f"{name}, {rows} rows", build=build)


def _fp8_experts_case(model: ModelShape) -> Case:
    """One row's chosen experts next to each other are two matrices: what INT4 is compared with.

    Gating and weighing are left out, which flatters FP8.
    """

    def build(source: Source) -> Trial:
        inner = model.num_choices * model.inner
        gate_up = an_fp8_matrix(source, 2 * inner, model.hidden)
        down = an_fp8_matrix(source, model.hidden, inner)
        x, hidden = source.normal(1, model.hidden), source.normal(1, inner)

        def run() -> tuple[torch.Tensor, torch.Tensor]:
            return fp8_product(x, gate_up), fp8_product(hidden, down)

        def error() -> float:
            expected = fp8_product_reference(x, gate_up), fp8_product_reference(hidden, down)
            return max(map(relative_error, run(), expected))

        first = work.fp8_product(1, 2 * inner, model.hidden)
        second = work.fp8_product(1, model.hidden, inner)
        both = work.Work(first.num_bytes + second.num_bytes, first.flops + second.flops)
        return Trial(run=run, error=error, tolerance=_TOLERANCE, work=both)

    return Case(op=FP8_EXPERTS, model=model.name, shape="1 rows", build=build)


def _router_case(model: ModelShape, rows: int) -> Case:
    def build(source: Source) -> Trial:
        x = source.normal(rows, model.hidden)
        weight = source.normal(model.num_experts, model.hidden, size=model.hidden**-0.5)
        bias = source.normal(model.num_experts, size=0.1, dtype=torch.float32)

        def run() -> tuple[torch.Tensor, torch.Tensor]:
            return route(x, weight, bias, model.num_choices, scaling=_SCALING)

        def error() -> float:
            # two experts whose scores differ by less than float32 sums may change places
            chosen, factor = run()
            score = (x.double() @ weight.double().T).sigmoid()
            preference = score + bias
            best = preference.topk(model.num_choices, -1).values
            own = score.gather(1, chosen.long())
            expected = own / own.sum(-1, keepdim=True) * _SCALING
            return max(
                relative_error(preference.gather(1, chosen.long()), best),
                relative_error(factor, expected),
                0.0 if all(len(set(row)) == len(row) for row in chosen.tolist()) else torch.inf,
            )

        return Trial(
            run=run,
            error=error,
            tolerance=_ROUTER_TOLERANCE,
            work=work.router(rows, model.num_experts, model.hidden, model.num_choices),
        )

    return Case(op=ROUTER, model=model.name, shape=f"{rows} rows", build=build)
