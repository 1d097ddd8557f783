"""An engine loop whose members run on the GPU's path, and what its check covers there."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from support.engine import a_submit, run_to_end
from support.gpu_path import gpu_path
from support.latent_pages import DEVICE
from support.tiny_decoder import a_decoder
from tenantry_runtime.cache.formats import SERVED_FORMATS
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.cache.tags import PageTags, Tracker
from tenantry_runtime.engine.build import LoadedModel, assemble_loop
from tenantry_runtime.engine.config import ModelSource, NodeConfig
from tenantry_runtime.engine.coverage import find_coverage

NUM_PAGES = 6
SOURCE = ModelSource(id="fake-model", directory="unused", cache="fp8")


@pytest.mark.parametrize("runs_ahead", [False, True], ids=["in turn", "ahead"])
def test_a_request_is_answered_as_on_a_cpu(runs_ahead: bool) -> None:
    answers = []
    for on_gpu in (False, True):
        device = DEVICE if on_gpu else "cpu"
        decoder = a_decoder("glm", device=device)
        cache = PagedCache.allocate(
            decoder.config,
            num_pages=NUM_PAGES,
            cache_format=SERVED_FORMATS["fp8"],
            device=device,
        )
        model = LoadedModel(
            source=SOURCE,
            decoder=decoder,
            revision="",
            cache=cache,
            num_pages=NUM_PAGES,
            num_appends=cache.num_appends,
            reads_on_device=on_gpu,
            has_graphs=on_gpu,
            runs_ahead=on_gpu and runs_ahead,
        )
        config = NodeConfig(
            models=(SOURCE,), dtype="bfloat16", device=device, num_pages=NUM_PAGES, max_batch=2
        )
        submit = a_submit(prompt=(5, 6, 7, 8), max_tokens=4, stop_token_ids=())
        with gpu_path() if on_gpu else nullcontext():
            loop = assemble_loop(config, [model])
            loop.submit(submit)
            transcript = run_to_end(loop)
            assert loop.audit() == []
        answers.append(transcript.tokens[submit.request_id])
    assert answers[0] == answers[1] and len(answers[0]) == 4


def test_every_op_of_the_gpus_table_is_covered() -> None:
    with gpu_path():
        decoder = a_decoder("glm", device=DEVICE)
        cache = PagedCache.allocate(
            decoder.config,
            num_pages=NUM_PAGES,
            cache_format=SERVED_FORMATS["fp8"],
            device=DEVICE,
        )

        def make(num_pages: int, num_appends: int) -> Tracker:
            return PageTags(
                num_pages, num_appends=num_appends, device=DEVICE, has_device_lengths=True
            )

        found = find_coverage(decoder, cache, make)
    for rows in found.values():
        assert all(row.is_on for row in rows)
        assert {"page attention", "sparse page attention", "index choice"} <= {
            row.op for row in rows
        }
        assert {row.device for row in rows} == {"cuda"}
