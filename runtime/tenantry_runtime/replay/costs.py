"""How long a member's step takes, for the simulated clock.

    seconds = fixed_s + token_s x tokens + read_s x (tokens read by each of them, summed)

A decode row is one token that reads its whole context; a prompt's token reads all before it.
The defaults are of Kimi K2.6 on one node of 8 H200 with tensor parallelism over all:

| number | value | from |
|---|---|---|
| prefill `fixed_s` | 16 ms | 77 GB of INT4 weights per GPU, all read by a chunk, at 4.8 TB/s |
| prefill `token_s` | 52.8 us | 18,270 tokens/s, less `fixed_s` spread over a chunk of 8,192 (see below) |
| prefill `read_s` | 0.52 ns | 640 FLOP x 64 heads x 61 layers a pair, 8 GPUs at the 600 TFLOPS of a good attention kernel |
| decode `fixed_s` | 7.0 ms | 137 tokens/s at concurrency 1, less one row |
| decode `token_s` | 0.28 ms | 2,192 tokens/s at concurrency 64 is 29.2 ms a step, less `fixed_s` and 64 contexts of 8,700 |
| decode `read_s` | 7.3 ns | 35,136 bytes of FP8 cache a token, on every GPU, at 4.8 TB/s |

The two decode rates are Cloudflare's (August 2026). The prefill rate is not published by itself;
InferenceX measured 1,174 tokens/s/GPU of 8k/1k traffic at concurrency 64 (May 2026), so 8,348 of
the prompts' a second and 1,044 of the answers'. Those took 16.3 steps of 33.3 ms (29.2 and 4.1 for
BF16 caches), which leaves 0.457 s for the prompts: 18,270 tokens/s. Two engines stand behind these
figures, so take times for what they compare, not for what they say alone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tenantry_runtime.engine.plan import StepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """What a member's step takes."""

    fixed_s: float
    token_s: float
    read_s: float

    def __post_init__(self) -> None:
        for name in ("fixed_s", "token_s", "read_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; a cost is 0 or more")

    def seconds(self, plan: StepPlan) -> float:
        """Return how long the step takes."""
        num_tokens = num_reads = 0
        for entry in plan.entries:
            length = len(entry.token_ids)
            num_tokens += length
            # each reads what is before it and itself
            num_reads += length * entry.start + length * (length + 1) // 2
        return self.fixed_s + self.token_s * num_tokens + self.read_s * num_reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Of the members of both phases."""

    prefill: StepCost = field(default=StepCost(fixed_s=16e-3, token_s=52.8e-6, read_s=0.52e-9))
    decode: StepCost = field(default=StepCost(fixed_s=7.0e-3, token_s=0.28e-3, read_s=7.3e-9))

    def scaled(self, scale: int) -> Costs:
        """Return the costs where one token stands for `scale` of them, and a decode step for as many steps."""
        return Costs(
            prefill=StepCost(
                fixed_s=self.prefill.fixed_s,
                token_s=self.prefill.token_s * scale,
                read_s=self.prefill.read_s * scale * scale,
            ),
            decode=StepCost(
                fixed_s=self.decode.fixed_s * scale,
                token_s=self.decode.token_s * scale,
                read_s=self.decode.read_s * scale * scale,
            ),
        )


KIMI_PREFILL_TOKENS = 686_000
"""Cache of a prefill member of Kimi K2.6 on 8 H200, in BF16."""
KIMI_DECODE_TOKENS = 1_370_000
"""Of a decode member, in FP8."""


def read_costs(path: Path) -> Costs:
    """Read `[prefill]` and `[decode]` of a TOML file; what it leaves out has its default.

    Raises `ValueError` naming the key.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error
    if unknown := set(tables) - {"prefill", "decode"}:
        raise ValueError(f"{path}: {min(unknown)}: no such table; there are prefill and decode")
    return Costs(
        prefill=_merged(path, "prefill", tables.get("prefill", {}), Costs().prefill),
        decode=_merged(path, "decode", tables.get("decode", {}), Costs().decode),
    )


def _merged(path: Path, phase: str, table: object, default: StepCost) -> StepCost:
    known = msgspec.to_builtins(default)
    if not isinstance(table, Mapping):
        raise ValueError(f"{path}: {phase}: must be a table")
    if unknown := set(table) - set(known):
        keys = ", ".join(known)
        raise ValueError(f"{path}: {phase}.{min(unknown)}: no such key; there are {keys}")
    try:
        return msgspec.convert({**known, **table}, StepCost)
    except (msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"{path}: {phase}: {error}") from error
