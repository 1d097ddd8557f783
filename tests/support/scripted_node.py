"""A node process that says what its configuration has: `python -m support.scripted_node FILE`."""

from __future__ import annotations

import sys
import time

import msgspec

from tenantry_runtime.core import FinishReason, Phase
from tenantry_runtime.pool.__main__ import main
from tenantry_runtime.pool.messages import (
    Deliver,
    MemberDescription,
    NodeMessage,
    NodeStatistics,
    SequenceTokens,
    ServedElsewhere,
    Step,
    Submit,
    Timings,
)
from tenantry_runtime.pool.page_map import PageMap
from tenantry_runtime.pool.page_port import PagePort
from tenantry_runtime.pool.step_loop import Tell

BUILD = "support.scripted_node:build_scripted_loop"

PHASES: tuple[Phase, ...] = ("prefill", "decode")


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """What the `engine` part of the node's configuration has."""

    models: tuple[str, ...]
    token_ids: list[int]
    """One per step; after the last one from the start again, until a stop token."""
    step_s: float = 0.0


class ScriptedLoop:
    """A step loop whose every sequence gets the same tokens."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._running: dict[str, tuple[Submit, int]] = {}
        self._step = 0

    def submit(self, submit: Submit) -> None:
        self._running[submit.request_id] = (submit, 0)

    def cancel(self, request_id: str) -> None:
        self._running.pop(request_id, None)

    def deliver(self, deliver: Deliver) -> None:
        raise AssertionError("it hands nothing over")

    def served_elsewhere(self, message: ServedElsewhere) -> None:
        """It owes nobody a turn."""

    @property
    def is_idle(self) -> bool:
        return not self._running

    def turn(self, tell_ahead: Tell | None = None) -> list[NodeMessage]:
        if not self._running:
            return []
        time.sleep(self._script.step_s)
        self._step += 1
        sequences = [self._advance(name) for name in list(self._running)]
        return [Step(step=self._step, sequences=sequences)]

    def page_maps(self) -> tuple[PageMap, ...]:
        return ()

    def statistics(self) -> NodeStatistics:
        return NodeStatistics(
            loop_turn_ns=0, num_running=len(self._running), num_waiting=0, num_free_pages={}
        )

    def describe(self) -> tuple[MemberDescription, ...]:
        return tuple(
            MemberDescription(
                model=model,
                phase=phase,
                weights_format="bf16",
                cache_format="bf16",
                page_tokens=64,
                num_pages=64,
                context_tokens=1 << 30,
                revision="0" * 64,
            )
            for model in self._script.models
            for phase in PHASES
        )

    def close(self) -> None:
        self._running.clear()

    def _advance(self, name: str) -> SequenceTokens:
        submit, num_done = self._running[name]
        token_id = self._script.token_ids[num_done % len(self._script.token_ids)]
        num_done += 1
        finish = None
        if token_id in submit.stop_token_ids:
            finish = FinishReason.STOP
        elif num_done == submit.max_tokens:
            finish = FinishReason.LENGTH
        if finish is None:
            self._running[name] = (submit, num_done)
        else:
            del self._running[name]
        return SequenceTokens(
            request_id=name,
            token_ids=(token_id,),
            finish=finish,
            timings=Timings(1, 2, 3, 4, 1) if finish else None,
        )


def build_scripted_loop(config: bytes, _port: PagePort) -> ScriptedLoop:
    return ScriptedLoop(msgspec.json.decode(config, type=Script))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], build=BUILD))
