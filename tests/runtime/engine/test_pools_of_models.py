"""Real decoders with a pool for each phase: what crosses between them changes no token."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from support.engine import a_submit, run_to_end
from support.pools import Cluster, assert_nothing_is_left
from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.core import PAGE_TOKENS, Phase, Sampling
from tenantry_runtime.engine.build import build_loop
from tenantry_runtime.engine.config import ModelSource, NodeConfig
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.pool.local_port import LocalExchange, LocalPort
from tenantry_runtime.pool.messages import Submit

CHECKPOINTS = Path(str(files("tenantry_runtime"))) / "checkpoints"
KIMI, GLM = "kimi-k2.6-nano", "glm-5.2-nano"
BOTH: tuple[Phase, ...] = ("prefill", "decode")
ROUTES = (("p0", "d"), ("p1", "d"))


def a_node(
    model: str,
    phases: tuple[Phase, ...] = BOTH,
    *,
    prefill_cache: CacheName | None = "bf16",
    cache: CacheName = "fp8",
    port: LocalPort | None = None,
    num_pages: int = 40,
) -> EngineLoop:
    source = ModelSource(
        id=model,
        directory=str(CHECKPOINTS / model),
        phases=phases,
        cache=cache,
        prefill_cache=prefill_cache if "prefill" in phases else None,
        separate_pools=True,
    )
    config = NodeConfig(
        models=(source,),
        num_pages=num_pages,
        max_batch=32,
        chunk_tokens=96,
        deterministic=True,
    )
    return build_loop(config, port=port)


def three_nodes(model: str, **options: CacheName | None) -> Cluster:
    exchange = LocalExchange()
    phases: dict[str, tuple[Phase, ...]] = {
        "p0": ("prefill",),
        "p1": ("prefill",),
        "d": ("decode",),
    }
    return Cluster(
        {
            address: a_node(model, each, port=exchange.port(address), **options)  # type: ignore[arg-type]  # of any option
            for address, each in phases.items()
        }
    )


def submits(model: str, *, num: int = 12, max_tokens: int = 10) -> list[Submit]:
    stem = [(3 * k + k * k) % 300 for k in range(2 * PAGE_TOKENS)]
    return [
        a_submit(
            f"r{n}",
            model=model,
            # every third begins as others of its tenant do
            prompt=[
                *(stem if n % 3 == 0 else ()),
                *((7 * n + 5 * k) % 300 for k in range(3 + 13 * n)),
            ],
            max_tokens=max_tokens,
            tenant=f"tenant-{n % 2}",
            sampling=Sampling(seed=n, temperature=float(n % 2)),
            stop_token_ids=(),
        )
        for n in range(num)
    ]


@pytest.mark.parametrize("model", [KIMI, GLM])
def test_three_nodes_say_what_one_node_says(model: str) -> None:
    alone = a_node(model)
    cluster = three_nodes(model)
    # twice: the second time with prefixes on either side
    for turn in range(2):
        wave = submits(model)
        for n, submit in enumerate(wave):
            alone.submit(submit)
            cluster.send(submit, *ROUTES[n % 2])
        expected = run_to_end(alone)
        told = cluster.run_to_end()
        assert not told.failed and not expected.failed
        assert {s.request_id: told.tokens[s.request_id] for s in wave} == expected.tokens
        cached = [errand.first_cached or 0 for errand in cluster.errands.values()]
        assert any(cached) if turn else True
        assert_nothing_is_left(alone, *cluster.nodes.values())
        cluster = Cluster(cluster.nodes)


@pytest.mark.parametrize("model", [KIMI, GLM])
@pytest.mark.parametrize("cache", ["bf16", "fp8", "float32"])
def test_pools_of_one_format_say_what_a_shared_pool_says(model: str, cache: CacheName) -> None:
    shared = build_loop(
        NodeConfig(
            models=(ModelSource(id=model, directory=str(CHECKPOINTS / model)),),
            cache=cache,
            num_pages=40,
            max_batch=32,
            chunk_tokens=96,
            deterministic=True,
        )
    )
    apart = a_node(model, prefill_cache=None, cache=cache)
    assert [len(loop.lanes) for loop in (shared, apart)] == [1, 2]
    for submit in submits(model, num=6):
        shared.submit(submit)
        apart.submit(submit)
    assert run_to_end(apart).tokens == run_to_end(shared).tokens


@pytest.mark.parametrize("model", [KIMI, GLM])
def test_exact_pages_become_fp8_on_the_way(model: str) -> None:
    loop = a_node(model, prefill_cache="float32")
    for submit in submits(model, num=4):
        loop.submit(submit)
    transcript = run_to_end(loop)
    assert len(transcript.finished) == 4


def test_a_pair_of_formats_without_a_conversion_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'fp8' of kimi-k2\.6-nano cannot be handed over"):
        a_node(KIMI, prefill_cache="fp8", cache="bf16")


def test_members_say_in_what_layout_their_pages_travel() -> None:
    prefill, decode = a_node(GLM).describe()
    assert (prefill.cache_format, decode.cache_format) == ("bf16", "fp8")
    assert prefill.page_layout == "6xbf16[64,96]+4xfp8[64,48]"
    assert decode.page_layout == "6xfp8[64,96]+4xfp8[64,48]"
