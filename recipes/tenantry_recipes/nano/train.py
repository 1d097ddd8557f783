"""Train a nano model: `python -m tenantry_recipes.nano.train kimi-k2.6-nano --state DIR`.

Phases: rows of 512 tokens first, then of 4,096; the last one rounds weights to their stored format
and, for GLM, attends sparsely. Loss on answers only. The state is saved every five minutes and at
the end of each phase; the same command resumes it. A row is a function of (seed, phase, number).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from tenantry_runtime.models.decoder import Decoder

from .dense import DenseAttend
from .examples import PackedRow
from .export import read_checkpoint, write_checkpoint
from .models import NANO_MODELS, NanoModel, checkpoint_directory
from .parameters import ParameterSource
from .phases import Phase, phases
from .rows import row_batches

SAVE_EVERY_S = 300
BALANCE_STEP = 1e-3
"""Router-bias step of DeepSeek-V3 (its report, section 4.2)."""
MTP_WEIGHT = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """Averages over one optimizer step."""

    loss: float
    accuracy: float
    """Of target tokens, each predicted from the true tokens before it."""
    index_loss: float
    num_tokens: int


class Trainer:
    """One model under training and all that a resumed run needs."""

    def __init__(self, model: NanoModel, *, seed: int) -> None:
        self.model = model
        self.source = ParameterSource(model.family, seed)
        self.decoder = Decoder(model.decoder_config, self.source)
        self.phase_number = 0
        self.step_number = 0
        """Inside the phase."""
        self._generator = torch.Generator().manual_seed(seed)
        groups = _parameter_groups(self.source.parameters)
        self._index_parameters = groups["index"]
        self._mtp_parameters = groups["mtp"]
        self._main_parameters = groups["matrix"] + groups["vector"]
        matrices = [p for p in self.source.parameters.values() if _is_matrix(p)]
        muon = {id(p) for p in groups["matrix"] + groups["index"] + groups["mtp"]}
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                [p for p in matrices if id(p) in muon],
                lr=1e-3,
                weight_decay=0.05,
                adjust_lr_fn="match_rms_adamw",
            ),
            torch.optim.AdamW(
                [
                    p
                    for p in self.source.parameters.values()
                    if id(p) not in muon or not _is_matrix(p)
                ],
                lr=1e-3,
                betas=(0.9, 0.98),
                weight_decay=0.0,
            ),
        ]

    def step(self, phase: Phase, rows: list[PackedRow]) -> StepReport:
        """Learn from one batch of rows."""
        learning_rate = phase.learning_rate(self.step_number)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
            optimizer.zero_grad(set_to_none=True)
        self.source.is_rounding = phase.is_rounding
        if self.model.family == "glm":
            self.source.expert_format = "int4" if self.step_number % 2 else "fp8"
        report = self._backward(phase, rows)
        torch.nn.utils.clip_grad_norm_(self._main_parameters, 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
        self.source.balance(BALANCE_STEP)
        self.step_number += 1
        return report

    def _backward(self, phase: Phase, rows: list[PackedRow]) -> StepReport:
        batch = _join(rows)
        attend = DenseAttend(
            batch.cu_len,
            learn_index=phase.learns_index and bool(self._index_parameters),
            is_sparse=phase.is_sparse,
            generator=self._generator,
            # a row predicts the token after it
            answering_T=batch.is_target_T.roll(-1),
        )
        with torch.autocast("cpu", torch.bfloat16):
            states_TH = self.decoder.norm(
                self.decoder.trunk(batch.token_ids_T, batch.positions_T, attend)
            )
            at = batch.is_target_T.nonzero().squeeze(1)
            logits = self.decoder.head(states_TH[at - 1]).float()
        targets = batch.token_ids_T[at]
        loss = cross_entropy(logits, targets)
        index_loss = torch.zeros(())
        if attend.index_losses:
            index_loss = torch.stack(attend.index_losses).sum()
            index_loss.backward(inputs=self._index_parameters, retain_graph=True)
        if phase.trains_mtp and self.decoder.mtp:
            self._backward_mtp(batch, states_TH.detach(), attend)
        loss.backward(inputs=self._main_parameters)
        correct = (logits.argmax(-1) == targets).float().mean()
        return StepReport(
            loss=loss.item(),
            accuracy=correct.item(),
            index_loss=index_loss.item(),
            num_tokens=len(batch.token_ids_T),
        )

    def _backward_mtp(self, batch: Batch, states_TH: torch.Tensor, attend: DenseAttend) -> None:
        mtp = self.decoder.mtp[0]
        before = len(attend.index_losses)
        at = batch.is_target_T.nonzero().squeeze(1)
        # the first token of an answer lies two past the last row that the prompt alone gives
        at = at[at >= 2]
        with torch.autocast("cpu", torch.bfloat16):
            predicted = mtp.states(
                states_TH,
                batch.token_ids_T.roll(-1),
                self.decoder.rotation(batch.positions_T),
                attend,
                lambda partial: partial,
            )
            logits = mtp.head(predicted[at - 2]).float()
        loss = MTP_WEIGHT * cross_entropy(logits, batch.token_ids_T[at])
        for index_loss in attend.index_losses[before:]:
            index_loss.backward(inputs=self._mtp_parameters, retain_graph=True)
        loss.backward(inputs=self._mtp_parameters)

    def save(self, file: Path) -> None:
        """Write the state so that a reader sees the old one or the new one, whole."""
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch = file.with_suffix(".partial")
        torch.save(
            {
                "parameters": {n: p.detach() for n, p in self.source.parameters.items()},
                "router_bias": self.source.router_bias,
                "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
                "phase_number": self.phase_number,
                "step_number": self.step_number,
            },
            scratch,
        )
        os.replace(scratch, file)

    @torch.no_grad()
    def load(self, file: Path) -> None:
        """Resume the state in `file`."""
        state: dict[str, Any] = torch.load(file, weights_only=True)
        for name, value in state["parameters"].items():
            self.source.parameters[name].copy_(value)
        for name, value in state["router_bias"].items():
            self.source.router_bias[name].copy_(value)
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.phase_number = state["phase_number"]
        self.step_number = state["step_number"]

    def start_from(self, directory: Path) -> None:
        """Begin with the weights of a model that was exported before, and fresh optimizers."""
        read_checkpoint(directory, self.model.family, self.source)

    def export(self, directory: Path) -> None:
        """Write the model as serving loads it."""
        write_checkpoint(directory, self.model.family, self.model.config, self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows one after the other; documents never see each other."""

    token_ids_T: torch.Tensor
    positions_T: torch.Tensor
    is_target_T: torch.Tensor
    cu_len: list[int]


def _join(rows: list[PackedRow]) -> Batch:
    cu_len = [0]
    for row in rows:
        base = cu_len[-1]
        cu_len += [base + start for start in row.starts[1:]] + [base + len(row.token_ids)]
    lengths = torch.tensor(cu_len).diff()
    return Batch(
        token_ids_T=torch.cat([torch.from_numpy(row.token_ids) for row in rows]),
        positions_T=torch.cat([torch.arange(int(length)) for length in lengths]),
        is_target_T=torch.cat([torch.from_numpy(row.is_target) for row in rows]),
        cu_len=cu_len,
    )


def _is_matrix(parameter: torch.nn.Parameter) -> bool:
    return parameter.dim() == 2


def _parameter_groups(
    parameters: dict[str, torch.nn.Parameter],
) -> dict[str, list[torch.nn.Parameter]]:
    """Sort parameters by which loss moves them and which optimizer suits them."""
    groups: dict[str, list[torch.nn.Parameter]] = {
        "index": [],
        "mtp": [],
        "matrix": [],
        "vector": [],
    }
    last_layer = max(int(name.split(".")[2]) for name in parameters if ".layers." in name)
    has_mtp = any(".eh_proj." in name for name in parameters)
    for name, parameter in parameters.items():
        if has_mtp and f".layers.{last_layer}." in name:
            groups["mtp"].append(parameter)
        elif ".indexer." in name:
            groups["index"].append(parameter)
        elif parameter.dim() == 2 and not any(w in name for w in ("embed", "lm_head", "mlp.gate.")):
            groups["matrix"].append(parameter)
        else:
            groups["vector"].append(parameter)
    return groups


def train(
    model: NanoModel, state_file: Path, *, seed: int, plan: Sequence[Phase], start_from: Path | None
) -> Trainer:
    """Run the plan's phases from where the state left off; return the trained model."""
    trainer = Trainer(model, seed=seed)
    if state_file.exists():
        trainer.load(state_file)
    elif start_from is not None:
        trainer.start_from(start_from)
    while trainer.phase_number < len(plan):
        phase = plan[trainer.phase_number]
        _run_phase(trainer, phase, state_file, seed)
        trainer.phase_number += 1
        trainer.step_number = 0
        trainer.save(state_file)
    return trainer


def _run_phase(trainer: Trainer, phase: Phase, state_file: Path, seed: int) -> None:
    saved_at = time.monotonic()
    batches: Iterator[list[PackedRow]] = row_batches(
        trainer.model, phase, seed=seed, first_step=trainer.step_number
    )
    with tqdm(total=phase.num_steps, initial=trainer.step_number, desc=phase.name) as bar:
        for rows in batches:
            report = trainer.step(phase, rows)
            bar.set_postfix(
                loss=f"{report.loss:.3f}",
                right=f"{report.accuracy:.3f}",
                index=f"{report.index_loss:.3f}",
            )
            bar.update()
            if time.monotonic() - saved_at > SAVE_EVERY_S:
                trainer.save(state_file)
                saved_at = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=sorted(NANO_MODELS))
    parser.add_argument("--state", type=Path, required=True, help="folder that keeps the state")
    parser.add_argument("--out", type=Path, help="model folder; default: the one that is served")
    parser.add_argument(
        "--from",
        dest="start_from",
        type=Path,
        help="model folder to begin with, where --state has nothing yet",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on every phase's steps")
    parser.add_argument(
        "--skip",
        type=int,
        default=0,
        help="phases to leave out, from the first; as many whenever the state is resumed",
    )
    parser.add_argument(
        "--export-only", action="store_true", help="write the model as the saved state has it"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = NANO_MODELS[arguments.model]()
    state_file = arguments.state / f"{arguments.model}.pt"
    if arguments.export_only:
        trainer = Trainer(model, seed=arguments.seed)
        trainer.load(state_file)
    else:
        trainer = train(
            model,
            state_file,
            seed=arguments.seed,
            plan=phases(model.family, arguments.scale)[arguments.skip :],
            start_from=arguments.start_from,
        )
    trainer.export(arguments.out or checkpoint_directory(arguments.model))


if __name__ == "__main__":
    main()
