"""Starting the servers that are compared, and what each must be sent.

All answer greedily with exactly as many tokens as are asked for, and keep no prompt for later ones.
The others are sent token ids: those that this runtime makes of the messages that it is sent.
"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import Process

from tenantry_recipes.bench.contender import BenchPrompt, EngineSettings
from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_recipes.bench.memory import family_peak_bytes
from tenantry_recipes.bench.node_config import MODEL, node_config
from tenantry_recipes.bench.serving import LOOPBACK, free_port, serving
from tenantry_recipes.bench.stream_client import StreamRequest

CONTEXT_TOKENS = 512
"""Of one request, prompt and answer together."""

START_TIMEOUT_S = 600.0
"""vLLM compiles for more than a minute on two cores."""
POLL_INTERVAL_S = 0.05
END_GRACE_S = 10.0
TAIL_CHARS = 4000

VLLM_COMPILATION = '{"custom_ops": ["-rotary_embedding"]}'
"""Its own rotary operator for CPUs rotates wrong rows of MLA's queries, which have a heads axis."""

VLLM_ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that is ready."""

    request: Callable[[BenchPrompt, int], StreamRequest]
    """Makes the call that streams so many tokens."""
    start_s: float
    """From its command to its readiness, compilation included."""
    peak_bytes: Callable[[], int]


@asynccontextmanager
async def start_ours(settings: EngineSettings, state_dir: Path) -> AsyncIterator[Server]:
    """Serve a checkpoint with this runtime's node and edge."""
    started_s = time.perf_counter()
    config = node_config(settings)
    async with serving(config, state_dir, text_directory=settings.directory) as served:
        yield Server(
            request=served.request,
            start_s=time.perf_counter() - started_s,
            peak_bytes=served.peak_bytes,
        )


@asynccontextmanager
async def start_llama(
    program: Path, model: Path, *, threads: int, max_batch: int, log: Path
) -> AsyncIterator[Server]:
    """Serve a GGUF file with llama.cpp; its cache is in F16, of the same size."""
    port = free_port()
    command = [
        *(str(program), "--model", str(model), "--host", LOOPBACK, "--port", str(port)),
        *("--threads", str(threads), "--parallel", str(max_batch)),
        # divided among as many sequences
        *("--ctx-size", str(max_batch * CONTEXT_TOKENS)),
        # no copies of prompts that are done
        *("--cache-ram", "0"),
    ]
    async with _running(command, port=port, environ={}, log=log) as server:
        yield server


@asynccontextmanager
async def start_vllm(
    program: Path, directory: Path, *, is_eager: bool, max_batch: int, log: Path
) -> AsyncIterator[Server]:
    """Serve a checkpoint with vLLM, compiled unless `is_eager`; it divides the cores itself."""
    port = free_port()
    command = [
        *(str(program), "serve", str(directory), "--host", LOOPBACK, "--port", str(port)),
        *("--served-model-name", MODEL, "--dtype", "bfloat16"),
        *("--max-model-len", str(CONTEXT_TOKENS), "--max-num-seqs", str(max_batch)),
        "--no-enable-prefix-caching",
        *("--compilation-config", VLLM_COMPILATION),
        *(["--enforce-eager"] if is_eager else []),
    ]
    # what earlier starts have compiled would hide how long a first one takes
    with tempfile.TemporaryDirectory(prefix="tenantry-bench-") as cache:
        caches = {"VLLM_CACHE_ROOT": cache, "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
        environ = {**VLLM_ENVIRONMENT, **caches}
        async with _running(command, port=port, environ=environ, log=log) as server:
            yield server


def completion_request(port: int, prompt: BenchPrompt, num_tokens: int) -> StreamRequest:
    """Make a call of OpenAI's completions, in words that both other servers know."""
    return StreamRequest(
        host=LOOPBACK,
        port=port,
        path="/v1/completions",
        body=msgspec.json.encode(
            {
                "model": MODEL,
                "prompt": prompt.token_ids,
                "max_tokens": num_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
                # llama.cpp's
                "cache_prompt": False,
            }
        ),
    )


@asynccontextmanager
async def _running(
    command: Sequence[str], *, port: int, environ: Mapping[str, str], log: Path
) -> AsyncIterator[Server]:
    """Run a server's program for the duration of the context."""
    log.parent.mkdir(parents=True, exist_ok=True)
    started_s = time.perf_counter()
    with log.open("wb") as output:
        process = await anyio.open_process(
            command,
            env={**_unset_threads(os.environ), **environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # ended with all that it starts
            start_new_session=True,
        )
    try:
        await _until_healthy(process, port, log)
        yield Server(
            request=lambda prompt, num_tokens: completion_request(port, prompt, num_tokens),
            start_s=time.perf_counter() - started_s,
            peak_bytes=lambda: family_peak_bytes(process.pid),
        )
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


def _unset_threads(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out what is said of threads here: the others choose for themselves."""
    return {name: value for name, value in environ.items() if not name.startswith("OMP_")}


async def _until_healthy(process: Process, port: int, log: Path) -> None:
    with anyio.move_on_after(START_TIMEOUT_S):
        while process.returncode is None:
            if await anyio.to_thread.run_sync(_is_healthy, port):
                return
            # another project's server, which announces itself in no other way
            await anyio.sleep(POLL_INTERVAL_S)
    raise BenchmarkError(f"a server did not start (all: {log}):\n{_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-TAIL_CHARS:]


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
        with anyio.move_on_after(END_GRACE_S):
            await process.wait()
    try:
        # whatever of it is left
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    await process.wait()
