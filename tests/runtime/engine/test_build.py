"""A loop built from checkpoints on disk, running the real decoders."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from support.engine import Transcript, a_submit, assert_nothing_is_held, run_to_end
from tenantry_runtime.cache.formats import CACHE_FORMATS, CacheName
from tenantry_runtime.core import Sampling
from tenantry_runtime.engine.build import build_loop
from tenantry_runtime.engine.config import ModelSource, NodeConfig
from tenantry_runtime.engine.devices import DeviceMemory, memory_of, require_device
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.errors import CheckpointError, ConfigurationError
from tenantry_runtime.models.loader import load_config
from tenantry_runtime.models.plan import Gpus, find_model, plan_member
from tenantry_runtime.models.sizes import WeightFormat
from tenantry_runtime.pool.messages import Submit

CHECKPOINTS = Path(str(files("tenantry_runtime"))) / "checkpoints"
MODELS = ("kimi-k2.6-nano", "glm-5.2-nano")
NUM_PAGES = 9


def a_loop(cache: CacheName, *, max_batch: int = 8) -> EngineLoop:
    models = tuple(ModelSource(id=name, directory=str(CHECKPOINTS / name)) for name in MODELS)
    return build_loop(
        NodeConfig(
            models=models,
            cache=cache,
            num_pages=NUM_PAGES,
            max_batch=max_batch,
            chunk_tokens=48,
            deterministic=True,
        )
    )


def submits() -> list[Submit]:
    return [
        a_submit(
            f"{model}-{n}",
            model=model,
            prompt=[(7 * n + 5 * k) % 300 for k in range(44 + 25 * n)],
            max_tokens=20,
            tenant=f"tenant-{n % 2}",
            sampling=Sampling(seed=n, temperature=float(n % 2)),
            stop_token_ids=(),
        )
        for n in range(4)
        for model in MODELS
    ]


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_real_decoders_answer_in_a_batch_as_they_do_alone(cache: CacheName) -> None:
    loop = a_loop(cache)
    for submit in submits():
        loop.submit(submit)
    together = run_to_end(loop)
    assert_nothing_is_held(loop, NUM_PAGES)

    alone = Transcript()
    single = a_loop(cache, max_batch=1)
    for submit in submits():
        single.submit(submit)
        run_to_end(single, alone)
    assert together.tokens == alone.tokens
    assert not together.failed and not alone.failed


def test_a_directory_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    config = NodeConfig(models=(ModelSource(id="m", directory=str(tmp_path)),))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        build_loop(config)


def test_a_cache_too_small_for_one_page_is_refused() -> None:
    source = ModelSource(id="m", directory=str(CHECKPOINTS / MODELS[0]))
    with pytest.raises(ConfigurationError, match=r"100 bytes .*cache_bytes.* hold no page of m"):
        build_loop(NodeConfig(models=(source,), cache_bytes=100))


@pytest.mark.parametrize(
    ("free_bytes", "pool_bytes"), [(690_000_000, 30_000_000), (60_000_000, 20_000_000)]
)
def test_pools_share_what_weights_and_others_leave_of_the_memory(
    free_bytes: int, pool_bytes: int
) -> None:
    asked: list[str] = []

    def memory(device: str) -> DeviceMemory:
        asked.append(device)
        return DeviceMemory(
            total_bytes=1_000_000_000, free_bytes=free_bytes, held_bytes=310_000_000
        )

    kimi, glm = (ModelSource(id=name, directory=str(CHECKPOINTS / name)) for name in MODELS)
    config = NodeConfig(models=(kimi, replace(glm, separate_pools=True)), memory_fraction=0.4)
    loop = build_loop(config, memory=memory)

    # 90 MB for three pools, if as much is free; in each of them a page is a sink
    kimi_pages, glm_pages = (
        pool_bytes // (64 * CACHE_FORMATS["bf16"].bytes_per_token(load_config(CHECKPOINTS / name)))
        - 1
        for name in MODELS
    )
    assert asked == ["cpu"]
    assert [lane.pool.num_pages for lane in loop.lanes] == [kimi_pages, glm_pages, glm_pages]


def test_what_a_node_gives_to_pages_is_what_a_plan_says() -> None:
    # of a tenth of a GPU, since these pages are really allocated
    directory = CHECKPOINTS / MODELS[0]
    gpus = Gpus(num_gpus=1, bytes_per_gpu=1_000_000_000, memory_fraction=0.1)
    plan = plan_member(
        find_model(str(directory)),
        weights=WeightFormat(experts="bf16"),
        cache=CACHE_FORMATS["bf16"],
        gpus=gpus,
    )

    loop = build_loop(
        NodeConfig(models=(ModelSource(id="m", directory=str(directory)),), memory_fraction=0.1),
        memory=lambda _: DeviceMemory(
            total_bytes=gpus.bytes_per_gpu,
            free_bytes=gpus.bytes_per_gpu - plan.gpu_weight_bytes,
            held_bytes=plan.gpu_weight_bytes,
        ),
    )

    assert [lane.pool.num_pages for lane in loop.lanes] == [plan.num_pages]


@pytest.mark.parametrize(("free_bytes", "held_bytes"), [(600, 400), (0, 100)])
def test_a_fraction_that_leaves_nothing_is_refused(free_bytes: int, held_bytes: int) -> None:
    source = ModelSource(id="m", directory=str(CHECKPOINTS / MODELS[0]))
    config = NodeConfig(models=(source,), memory_fraction=0.4)
    memory = DeviceMemory(total_bytes=1000, free_bytes=free_bytes, held_bytes=held_bytes)
    problem = rf"memory_fraction 0\.4 of 1000 bytes .* take {held_bytes}, and {free_bytes} are free"
    with pytest.raises(ConfigurationError, match=problem):
        build_loop(config, memory=lambda _: memory)


def test_a_device_that_is_not_there_is_refused() -> None:
    require_device("cpu")
    with pytest.raises(ConfigurationError, match=r"cuda:99': PyTorch .* (no CUDA|GPUs here)"):
        require_device("cuda:99")


def test_what_does_not_fit_into_the_devices_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr("tenantry_runtime.engine.build.warm_up", full)
    source = ModelSource(id="m", directory=str(CHECKPOINTS / MODELS[0]))
    with pytest.raises(ConfigurationError, match=r"do not fit .*2\.00 GiB.* memory_fraction"):
        build_loop(NodeConfig(models=(source,), num_pages=2))


def test_the_memory_of_this_machine_is_what_its_system_says() -> None:
    memory = memory_of("cpu")
    assert memory.total_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < memory.free_bytes < memory.total_bytes
    # torch is in it
    assert 50 << 20 < memory.held_bytes < memory.total_bytes
