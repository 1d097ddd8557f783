"""One model's two phases in one process or in two, with their pages in one pool or in two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from tenantry_recipes.bench.http_side import HttpContender
from tenantry_recipes.bench.node_config import MODEL
from tenantry_recipes.nano.models import checkpoint_directory
from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.core import Phase
from tenantry_runtime.engine.config import ModelSource, NodeConfig
from tenantry_runtime.text import TextModel, load_text

from . import real_pages

Layout: TypeAlias = Mapping[str, NodeConfig]
"""Nodes by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The model that is measured, and what every node of it has."""

    directory: Path
    text: TextModel
    threads: int
    max_batch: int
    cache_bytes: int | None = None
    """Of a pool; None: what a node has by itself."""
    handoff_bytes: int | None = None
    """Per turn; None: what a node has by itself."""

    @classmethod
    @contextmanager
    def load(cls, name: str, *, threads: int, max_batch: int) -> Iterator[Subject]:
        """Read what a client needs of a nano model, or write one with real pages for as long."""
        is_real = name == real_pages.NAME
        found = real_pages.checkpoint() if is_real else nullcontext(checkpoint_directory(name))
        with found as directory:
            subject = cls(
                directory=directory, text=load_text(directory), threads=threads, max_batch=max_batch
            )
            yield (
                replace(
                    subject,
                    cache_bytes=real_pages.CACHE_BYTES,
                    handoff_bytes=real_pages.HANDOFF_BYTES,
                )
                if is_real
                else subject
            )

    def one_pool(self) -> Layout:
        return {"node": self._node(("prefill", "decode"))}

    def two_pools(self) -> Layout:
        return {"node": self._node(("prefill", "decode"), decode="fp8")}

    def two_nodes(self, *, decode: CacheName = "bf16") -> Layout:
        return {
            "prefill": self._node(("prefill",)),
            "decode": self.decode_node(decode),
        }

    def decode_node(self, cache: CacheName = "bf16") -> NodeConfig:
        return self._node(("decode",), decode=cache)

    def _node(self, phases: tuple[Phase, ...], *, decode: CacheName = "bf16") -> NodeConfig:
        """Run `phases` on one node; the pages of prefill are in BF16."""
        has_prefill = "prefill" in phases
        source = ModelSource(
            id=MODEL,
            directory=str(self.directory),
            # control tokens end an answer, which is to have its full length
            vocab_limit=min(self.text.tokenizer.controls.names),
            phases=phases,
            cache=decode if "decode" in phases else "bf16",
            prefill_cache="bf16" if has_prefill else None,
        )
        return NodeConfig(
            models=(source,),
            threads=self.threads,
            max_batch=self.max_batch,
            cache_bytes=self.cache_bytes,
            handoff_bytes=self.handoff_bytes,
        )


@contextmanager
def running(
    subject: Subject, layouts: Iterable[tuple[str, Layout]]
) -> Iterator[dict[str, HttpContender]]:
    """Serve each layout behind an edge of its own."""
    with ExitStack() as stack:
        contenders: dict[str, HttpContender] = {}
        for name, layout in layouts:
            contenders[name] = contender = HttpContender.over(layout, subject.directory)
            stack.callback(contender.close)
        yield contenders
