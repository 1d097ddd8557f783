"""Cases of what reads, writes, checks and converts cache pages.

S sequences, P page-table columns, N heads, L latent values, C values in a cache row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from tenantry_kernels import (
    fp8_rows,
    page_check as check_reference,
    page_digest as digest_reference,
)
from tenantry_kernels.gpu import page_check, page_digest
from tenantry_kernels.gpu.append import append
from tenantry_kernels.gpu.mla_decode import mla_decode
from tenantry_kernels.gpu.page_quantise import page_quantise
from tenantry_kernels.gpu.sparse_decode import sparse_decode

from . import work
from .case import Case, Source, Trial, differing, relative_error
from .shapes import Load, ModelShape

PAGE_TOKENS = fp8_rows.PAGE_TOKENS
FORMATS = {"bf16": False, "fp8": True}

DECODE, SPARSE, CHECK = "mla_decode", "sparse_decode", "page_check"
APPEND, QUANTISE, DIGEST = "append", "page_quantise", "page_digest"
FP8_DECODE_GOAL = 0.85

# of the largest value: weights and results are rounded to BF16
_TOLERANCE = 2e-2
_OWNER, _GENERATION = 7, 1000


class Pages(NamedTuple):
    """Sequences of one length on pages in no order; the pool's last page is the sink."""

    pool: torch.Tensor
    row_XC: torch.Tensor
    """What attention must see of the pool's rows, float32 [rows, C]."""
    table_SP: torch.Tensor
    length_S: torch.Tensor


def page_cases(model: ModelShape, load: Load) -> Iterator[Case]:
    for sequences, tokens in load.sequences:
        for name in FORMATS:
            yield _decode_case(model, name, sequences, tokens)
        if model.index_choices:
            for name in FORMATS:
                yield _sparse_case(model, name, sequences, tokens)
        yield _check_case(model, sequences, tokens)
    for rows in load.rows:
        for name in FORMATS:
            yield _append_case(model, name, rows)
    yield _quantise_case(model, load.num_pages)
    yield _digest_case(model, load.num_pages)


def some_pages(
    source: Source, width: int, num_sequences: int, num_tokens: int, *, is_fp8: bool
) -> Pages:
    columns = -(-num_tokens // PAGE_TOKENS)
    num_pages = num_sequences * columns
    rows = source.normal(num_pages + 1, PAGE_TOKENS, width)
    pool = fp8_rows.pack_pages(rows) if is_fp8 else rows
    seen = fp8_rows.unpack_pages(pool) if is_fp8 else rows.float()
    return Pages(
        pool,
        seen.flatten(0, 1),
        source.permutation(num_pages).view(num_sequences, columns),
        torch.full((num_sequences,), num_tokens, device=source.device),
    )


def attended(
    query_NC: torch.Tensor, key_KC: torch.Tensor, scale: float, latent: int
) -> torch.Tensor:
    """Return the latent sums [N, L] of one token's heads over its keys, in float32."""
    weight = (query_NC.float() @ key_KC.T * scale).softmax(-1)
    return weight @ key_KC[:, :latent]


def _rows_at(pages: Pages, sequence: int, position: torch.Tensor) -> torch.Tensor:
    page = pages.table_SP[sequence, position // PAGE_TOKENS]
    return pages.row_XC[page * PAGE_TOKENS + position % PAGE_TOKENS]


def _scale(model: ModelShape) -> float:
    return float((model.latent + model.rope) ** -0.5)


def _attention_trial(
    model: ModelShape,
    name: str,
    query_S1NC: torch.Tensor,
    pages: Pages,
    seen_SK: torch.Tensor,
    run: Callable[[], torch.Tensor],
) -> Trial:
    """Compare what `run` returns with attention over the positions that each sequence sees."""
    num_sequences, num_seen = seen_SK.shape

    def error() -> float:
        expected = [
            attended(query_S1NC[s, 0], _rows_at(pages, s, seen), _scale(model), model.latent)
            for s, seen in enumerate(seen_SK)
        ]
        return relative_error(run()[:, 0], torch.stack(expected))

    return Trial(
        run=run,
        error=error,
        tolerance=_TOLERANCE,
        work=work.mla_decode(
            num_sequences * num_seen,
            num_sequences,
            model.num_heads,
            model.latent,
            model.rope,
            is_fp8=FORMATS[name],
        ),
    )


def _decode_case(model: ModelShape, name: str, sequences: int, tokens: int) -> Case:
    width, scale = model.latent + model.rope, _scale(model)

    def build(source: Source) -> Trial:
        pages = some_pages(source, width, sequences, tokens, is_fp8=FORMATS[name])
        query = source.normal(sequences, 1, model.num_heads, width)

        def run() -> torch.Tensor:
            return mla_decode(
                query,
                pages.pool,
                pages.table_SP,
                pages.length_S,
                scale=scale,
                latent_dim=model.latent,
            )

        every = torch.arange(tokens, device=source.device).expand(sequences, -1)
        return _attention_trial(model, name, query, pages, every, run)

    return Case(
        op=f"{DECODE} {name}",
        model=model.name,
        shape=f"{sequences} x {tokens} tokens",
        build=build,
        goal=FP8_DECODE_GOAL if FORMATS[name] else None,
    )


def _sparse_case(model: ModelShape, name: str, sequences: int, tokens: int) -> Case:
    width, scale = model.latent + model.rope, _scale(model)
    num_choices = min(model.index_choices, tokens)

    def build(source: Source) -> Trial:
        pages = some_pages(source, width, sequences, tokens, is_fp8=FORMATS[name])
        query = source.normal(sequences, 1, model.num_heads, width)
        chosen = torch.stack([source.permutation(tokens)[:num_choices] for _ in range(sequences)])
        chosen_SQK = chosen[:, None].int().contiguous()

        def run() -> torch.Tensor:
            return sparse_decode(
                query,
                pages.pool,
                pages.table_SP,
                pages.length_S,
                chosen_SQK,
                scale=scale,
                latent_dim=model.latent,
            )

        return _attention_trial(model, name, query, pages, chosen, run)

    shape = f"{sequences} x {num_choices} of {tokens} tokens"
    return Case(op=f"{SPARSE} {name}", model=model.name, shape=shape, build=build)


def _check_case(model: ModelShape, sequences: int, tokens: int) -> Case:
    def build(source: Source) -> Trial:
        columns = -(-tokens // PAGE_TOKENS)
        num_pages, device = sequences * columns, source.device
        table = source.permutation(num_pages).view(sequences, columns)
        tag = (_OWNER << 48) + _GENERATION + torch.arange(num_pages + 1, device=device)
        fill = torch.zeros(num_pages + 1, dtype=torch.int64, device=device)
        column = torch.arange(columns, device=device)
        held = (tokens - column * PAGE_TOKENS).clamp(max=PAGE_TOKENS)
        fill[table] = (column << 32) | held
        expected_tag = tag[table]
        # one page in sixteen sequences is another's, in the last column
        expected_tag[::16, -1] += 1
        owner = torch.full((sequences,), _OWNER, device=device)
        length = torch.full((sequences,), tokens, device=device)
        fault = torch.zeros_like(length)
        pages = {
            "tag_P": tag,
            "fill_P": fill,
            "page_table_SL": table,
            "expected_tag_SL": expected_tag,
            "owner_S": owner,
            "filled_S": length,
            "end_S": length,
        }

        def run() -> torch.Tensor:
            page_check.check_pages(fault, **pages)
            return fault

        def error() -> float:
            wanted = torch.zeros_like(fault)
            check_reference.check_pages(wanted, **pages)
            return differing(run(), wanted)

        return Trial(
            run=run, error=error, tolerance=0.0, work=work.page_check(sequences, num_pages)
        )

    return Case(op=CHECK, model=model.name, shape=f"{sequences} x {tokens} tokens", build=build)


def _append_case(model: ModelShape, name: str, rows: int) -> Case:
    width, is_fp8 = model.latent + model.rope, FORMATS[name]

    def build(source: Source) -> Trial:
        # each row on a page of its own, as in decode
        row = source.normal(rows, width)
        slot = source.permutation(rows) * PAGE_TOKENS + source.integers(0, PAGE_TOKENS, rows)
        blank = source.normal(rows + 1, PAGE_TOKENS, width)
        pool = fp8_rows.pack_pages(blank) if is_fp8 else blank

        def run() -> torch.Tensor:
            append(pool, slot, row)
            return pool

        def error() -> float:
            expected = pool.clone()
            if is_fp8:
                fp8_rows.append_rows(expected, slot, row)
            else:
                expected.flatten(0, 1)[slot] = row
            return differing(run(), expected)

        return Trial(
            run=run, error=error, tolerance=0.0, work=work.append(rows, width, is_fp8=is_fp8)
        )

    return Case(op=f"{APPEND} {name}", model=model.name, shape=f"{rows} rows", build=build)


def _quantise_case(model: ModelShape, num_pages: int) -> Case:
    width = model.latent + model.rope

    def build(source: Source) -> Trial:
        pool, page = source.normal(num_pages + 1, PAGE_TOKENS, width), source.permutation(num_pages)
        return Trial(
            run=lambda: page_quantise(pool, page),
            error=lambda: differing(page_quantise(pool, page), fp8_rows.pack_pages(pool[page])),
            tolerance=0.0,
            work=work.page_quantise(num_pages, width),
        )

    return Case(op=QUANTISE, model=model.name, shape=f"{num_pages} pages", build=build)


def _digest_case(model: ModelShape, num_pages: int) -> Case:
    width = model.latent + model.rope

    def build(source: Source) -> Trial:
        page_bytes = fp8_rows.page_bytes(width)
        pool = source.integers(0, 256, num_pages + 1, page_bytes, dtype=torch.uint8)
        page = source.permutation(num_pages)
        return Trial(
            run=lambda: page_digest.page_digests(pool, page),
            error=lambda: differing(
                page_digest.page_digests(pool, page), digest_reference.page_digests(pool[page])
            ),
            tolerance=0.0,
            work=work.page_digest(num_pages, width),
        )

    return Case(op=DIGEST, model=model.name, shape=f"{num_pages} fp8 pages", build=build)
