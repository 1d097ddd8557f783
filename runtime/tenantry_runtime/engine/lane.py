"""One model on one node: its two members and their scheduler."""

from __future__ import annotations

from dataclasses import dataclass

from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.cache.tags import Tracker
from tenantry_runtime.core import Phase
from tenantry_runtime.errors import ContextExceeded
from tenantry_runtime.pool.messages import Failed, Submit

from .member import Member
from .scheduler import Scheduler
from .upkeep import Upkeep


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What the loop turns for one model."""

    scheduler: Scheduler
    prefill: Member
    decode: Member
    prefixes: PrefixTrees
    tracker: Tracker
    upkeep: Upkeep
    vocab_size: int

    @property
    def model(self) -> str:
        return self.decode.spec.model

    def member(self, phase: Phase) -> Member:
        return self.prefill if phase == "prefill" else self.decode

    def refusal(self, submit: Submit) -> Failed | None:
        """Return why the sequence could not run even on an idle node, None if it could."""
        token_ids = submit.token_ids
        if not token_ids or submit.max_tokens < 1:
            return _failed(submit, "internal", "a sequence needs a prompt and room for an answer")
        # one bad id would fail the whole step, and with it the sequences of others
        if min(token_ids) < 0 or max(token_ids) >= self.vocab_size:
            return _failed(submit, "internal", f"a token id is not in 0..{self.vocab_size - 1}")
        num_tokens = len(token_ids) + submit.max_tokens
        limit = self.decode.spec.context_tokens
        if num_tokens > limit:
            return _failed(submit, "context", str(ContextExceeded(num_tokens, limit)))
        return None


def _failed(submit: Submit, reason: str, message: str) -> Failed:
    return Failed(request_id=submit.request_id, reason=reason, message=message)
