"""Decode with INT4, FP8 and BF16 weights on this CPU: `python -m tenantry_recipes.bench.weight_formats`.

Two layers of GLM-5.2's widths with random weights: attention with its indexer, a shared expert, and 16
routed experts of which a token takes 8, so that they fit in memory. The rest of a decoder is there with
few tokens of vocabulary.

| contender | routed experts | rest |
|---|---|---|
| bf16 | BF16 | BF16; the step is compiled as a whole |
| fp8 | FP8 blocks | FP8 blocks: GLM as released |
| int4 | INT4 | BF16 |
| int4, fp8 | INT4 | FP8 blocks |

kv_b_proj is BF16 in all. Contenders take turns, a step each, in another order each round, and so does
a plain sum over memory.

| figure | what |
|---|---|
| step | median over the rounds |
| read | bytes of weights that such a step needs: experts as many as even choices make different |
| GB/s | read over step |
| share | of what the sum reads per second: the median of each round's |
| against | median of each round's ratio of steps; above 1: faster than that contender |
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import torch

from tenantry_kernels.fp8_matrix import FP8_BLOCK, Fp8Matrix
from tenantry_kernels.int4_matrix import INT4_GROUP, INT4_PER_WORD, Int4Matrix
from tenantry_kernels.stored import StoredDense, StoredFp8, StoredInt4, StoredMatrix
from tenantry_runtime.cache.tags import NoTags
from tenantry_runtime.models import Decoder
from tenantry_runtime.models.config import ModelConfig, Shard
from tenantry_runtime.models.linear import (
    DenseExperts,
    DenseLinear,
    Experts,
    HeadMaps,
    Linear,
    Part,
    Split,
)
from tenantry_runtime.models.released import RELEASED
from tenantry_runtime.models.sizes import ExpertFormat, RestFormat, WeightFormat, weight_bytes
from tenantry_runtime.models.stored import Cut, StoredExperts, StoredLinear

from .decode_rig import Rig
from .machine import describe_machine
from .options import concurrencies
from .spread import Spread, ratios
from .table import number, table

LENGTH = 512
"""Tokens of each sequence: attention reads little beside the weights."""
NUM_WARM_UP = 2
SUM_VALUES = 1 << 26
"""Of the sum: 256 MiB of float32, more than caches hold."""
_POOL_VALUES = 1 << 22
"""Random values that matrices are filled with again and again: what is timed does not look at them."""

CONTENDERS = {
    "bf16": WeightFormat(experts="bf16"),
    "fp8": WeightFormat(experts="fp8", rest="fp8"),
    "int4": WeightFormat(experts="int4"),
    "int4, fp8": WeightFormat(experts="int4", rest="fp8"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender at one number of sequences."""

    contender: str
    num_sequences: int
    step_s: float
    read_bytes: float
    share: Spread
    """Of the bandwidth."""
    against_fp8: Spread
    against_bf16: Spread

    @property
    def rate(self) -> float:
        return self.read_bytes / self.step_s


def glm_layers(num_layers: int, num_experts: int) -> ModelConfig:
    """Return GLM-5.2 with so many layers and experts, all of them MoE layers."""
    glm = RELEASED["glm-5.2"].config
    assert glm.indexer is not None
    return replace(
        glm,
        num_layers=num_layers,
        num_mtp_layers=0,
        vocab_size=1024,
        is_dense_N=(False,) * num_layers,
        moe=replace(glm.moe, num_experts=num_experts),
        indexer=replace(glm.indexer, is_full_N=tuple(n == 0 for n in range(num_layers))),
    )


class RandomSource:
    """Random weights in one format. Matrices of one name and format are made once."""

    def __init__(self, made: dict[tuple[str, str], StoredMatrix], weights: WeightFormat) -> None:
        self._made = made
        self._weights = weights
        generator = torch.Generator().manual_seed(0)
        self._noise = torch.randn(_POOL_VALUES, generator=generator)
        words = torch.randint(-(2**31), 2**31, (_POOL_VALUES,), generator=generator)
        self._words = words.to(torch.int32)

    @property
    def shard(self) -> Shard:
        return Shard()

    def tensor(
        self, name: str, shape: tuple[int, ...], *, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Norms are near 1, all else near 0."""
        center = 1.0 if "norm" in name else 0.0
        return center + 0.02 * self._filled(self._noise, shape, dtype or torch.bfloat16)

    def linear(self, parts: Sequence[Part], in_dim: int, split: Split | None = None) -> Linear:
        form = "bf16" if parts[0].name.endswith(("lm_head", "weights_proj")) else self._weights.rest
        matrices = [self._matrix(part.name, form, part.out_dim, in_dim) for part in parts]
        if form == "bf16":
            joint = torch.cat([weight for m in matrices for weight in m.tensors()])
            return DenseLinear(joint, deterministic=False)
        return StoredLinear([Cut.whole(matrix) for matrix in matrices], deterministic=False)

    def heads(
        self, name: str, num_heads: int, key_dim: int, value_dim: int, in_dim: int
    ) -> HeadMaps:
        return HeadMaps(self.tensor(name, (num_heads, key_dim + value_dim, in_dim)), key_dim)

    def experts(
        self, prefix: str, num_experts: int, hidden_dim: int, intermediate_dim: int
    ) -> Experts:
        form = self._weights.experts
        joint_dim = 2 * intermediate_dim
        if form == "bf16":
            return DenseExperts(
                self.tensor(f"{prefix}.gate_up", (num_experts, joint_dim, hidden_dim)),
                self.tensor(f"{prefix}.down", (num_experts, hidden_dim, intermediate_dim)),
            )
        return StoredExperts(
            [
                (
                    self._product(f"{prefix}.{e}.gate_up", form, joint_dim, hidden_dim),
                    self._product(f"{prefix}.{e}.down", form, hidden_dim, intermediate_dim),
                )
                for e in range(num_experts)
            ]
        )

    def _product(self, name: str, form: ExpertFormat, out_dim: int, in_dim: int) -> StoredLinear:
        cut = Cut.whole(self._matrix(name, form, out_dim, in_dim))
        return StoredLinear([cut], deterministic=False)

    def _matrix(
        self, name: str, form: ExpertFormat | RestFormat, out_dim: int, in_dim: int
    ) -> StoredMatrix:
        key = name, form
        if key not in self._made:
            self._made[key] = self._new(form, out_dim, in_dim)
        return self._made[key]

    def _new(self, form: ExpertFormat | RestFormat, out_dim: int, in_dim: int) -> StoredMatrix:
        if form == "int4":
            words = self._filled(self._words, (out_dim, in_dim // INT4_PER_WORD), torch.int32)
            scale = torch.full((out_dim, in_dim // INT4_GROUP), 0.004, dtype=torch.bfloat16)
            return StoredInt4(Int4Matrix(words, scale))
        if form == "fp8":
            weight = self._filled(self._noise, (out_dim, in_dim), torch.float8_e4m3fn)
            blocks = (-(-out_dim // FP8_BLOCK), -(-in_dim // FP8_BLOCK))
            return StoredFp8(Fp8Matrix(weight, torch.full(blocks, 0.02)))
        return StoredDense(0.02 * self._filled(self._noise, (out_dim, in_dim), torch.bfloat16))

    def _filled(
        self, pool: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype
    ) -> torch.Tensor:
        values = torch.empty(shape, dtype=dtype)
        narrow = pool.to(dtype)
        for part in values.view(-1).split(len(narrow)):
            part.copy_(narrow[: len(part)])
        return values


def read_bytes(config: ModelConfig, weights: WeightFormat, num_sequences: int) -> float:
    """Return the bytes of weights that a step needs, kv_b_proj in BF16 and the embedding left out."""
    size = weight_bytes(config, weights)
    moe, hidden = config.moe, config.hidden_dim
    left_out = (1 - moe.num_experts_per_token / moe.num_experts) ** num_sequences
    rest = size.rest - 2 * config.vocab_size * hidden
    if weights.rest == "fp8":
        heads = config.num_heads * (config.nope_dim + config.value_dim) * config.kv_lora_rank
        rest += config.num_layers * heads
    return rest + size.experts * (1 - left_out)


@torch.inference_mode()
def measure(
    config: ModelConfig,
    decoders: dict[str, Decoder],
    *,
    num_sequences: int,
    num_rounds: int,
) -> list[Row]:
    """Let all contenders take steps with so many sequences."""
    tracker, order = NoTags(), list(decoders)
    rigs = {
        name: Rig(decoder, cache="bf16", length=LENGTH, concurrency=num_sequences)
        for name, decoder in decoders.items()
    }
    for rig in rigs.values():
        for _ in range(NUM_WARM_UP):
            rig.timed(rig.step, tracker)
    sums = torch.ones(SUM_VALUES)
    taken: dict[str, list[float]] = {name: [] for name in order}
    bandwidth: list[float] = []
    rng = random.Random(0)
    for _ in range(num_rounds):
        rng.shuffle(order)
        for name in order:
            taken[name].append(rigs[name].timed(rigs[name].step, tracker))
        bandwidth.append(sums.nbytes / _seconds_of_sum(sums))
    return [_row(config, name, taken, bandwidth, num_sequences=num_sequences) for name in decoders]


def _row(
    config: ModelConfig,
    name: str,
    taken: dict[str, list[float]],
    bandwidth: Sequence[float],
    *,
    num_sequences: int,
) -> Row:
    num_bytes = read_bytes(config, CONTENDERS[name], num_sequences)
    return Row(
        contender=name,
        num_sequences=num_sequences,
        step_s=Spread.of(taken[name]).median,
        read_bytes=num_bytes,
        share=ratios([num_bytes / took_s for took_s in taken[name]], bandwidth),
        against_fp8=ratios(taken["fp8"], taken[name]),
        against_bf16=ratios(taken["bf16"], taken[name]),
    )


def _seconds_of_sum(values: torch.Tensor) -> float:
    started_s = time.perf_counter()
    values.sum()
    return time.perf_counter() - started_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=concurrencies, default=(1, 8))
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--experts", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = glm_layers(options.layers, options.experts)
    made: dict[tuple[str, str], StoredMatrix] = {}
    started_s = time.perf_counter()
    decoders = {
        name: Decoder(config, RandomSource(made, weights)) for name, weights in CONTENDERS.items()
    }
    made_s = time.perf_counter() - started_s
    rows = [
        row
        for num_sequences in options.sequences
        for row in measure(
            config,
            decoders,
            num_sequences=num_sequences,
            num_rounds=options.rounds,
        )
    ]
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    print(describe_machine(options.threads, ("torch", "numba")))
    print(f"weights made in {made_s:.0f} s; {options.rounds} rounds")
    print(_table(rows))


def _table(rows: Sequence[Row]) -> str:
    header = ("weights", "sequences", "step ms", "read GB", "GB/s", "share", "vs bf16", "vs fp8")
    return table(
        header,
        [
            (
                row.contender,
                str(row.num_sequences),
                number(row.step_s * 1e3),
                number(row.read_bytes / 1e9),
                number(row.rate / 1e9),
                f"{row.share.median:.0%}",
                number(row.against_bf16.median),
                number(row.against_fp8.median),
            )
            for row in rows
        ],
    )


if __name__ == "__main__":
    main()
