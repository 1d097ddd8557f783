"""Seconds from `workerctl dev` to a first streamed token: `python -m tenantry_recipes.bench.startup`.

| start | state directory | files of packages and checkpoints |
|---|---|---|
| cold | new | dropped from the page cache, as far as no other process maps them |
| warm | of the start before | in the page cache |

Each start is asked one model alone, again and again until it answers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio

import tenantry_runtime
from tenantry.credentials import CONFIG_DIR_VARIABLE, credentials_path, load_credentials
from tenantry_recipes.nano.models import CHECKPOINTS
from tenantry_runtime.supervisor.address import Address

from .errors import BenchmarkError
from .machine import describe_machine
from .serving import LOOPBACK, free_port, run_request
from .spread import Spread
from .stream_client import StreamRequest, ask
from .table import spread, table

MODELS = ("kimi-k2.6", "glm-5.2")
PROMPT = "What is 17 + 25?"
RETRY_INTERVAL_S = 0.01
START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model."""

    model: str
    cold_s: Spread
    warm_s: Spread


def measure(model: str, rounds: int) -> Row:
    """Start and end the runtime twice per round."""
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="tenantry-bench-") as folder:
            drop_from_page_cache()
            cold.append(first_token_s(model, Path(folder)))
            warm.append(first_token_s(model, Path(folder)))
    return Row(model=model, cold_s=Spread.of(cold), warm_s=Spread.of(warm))


def first_token_s(model: str, folder: Path) -> float:
    """Start the runtime on a state directory in `folder`, ask it, and end it."""
    environ = os.environ | {CONFIG_DIR_VARIABLE: str(folder / "config")}
    credentials_file = credentials_path(environ)
    port = free_port()
    started_s = time.perf_counter()
    with _dev(port, folder, environ):
        answered_s = anyio.run(_until_answered, model, port, credentials_file)
    return answered_s - started_s


def drop_from_page_cache() -> None:
    """Have the kernel forget the files that a start reads."""
    folders = {
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        str(CHECKPOINTS),
        str(Path(tenantry_runtime.__file__).parent),
    }
    for path in (file for folder in folders for file in Path(folder).rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def _dev(port: int, folder: Path, environ: dict[str, str]) -> Iterator[None]:
    program = Path(sysconfig.get_path("scripts")) / "workerctl"
    log = folder / "dev.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(program), "dev", "--port", str(port), "--state-dir", str(folder / "state")],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    except BenchmarkError as error:
        raise BenchmarkError(f"{error}:\n{log.read_text(errors='replace')}") from error
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


async def _until_answered(model: str, port: int, credentials_file: Path) -> float:
    """Return the time of the first token."""
    with anyio.move_on_after(START_TIMEOUT_S):
        while True:
            request = _request(model, port, credentials_file)
            if request is not None:
                try:
                    return (await ask(request)).text_s[0]
                except (OSError, BenchmarkError):
                    # not listening yet, or listening without a node
                    pass
            await anyio.sleep(RETRY_INTERVAL_S)
    raise BenchmarkError(f"no answer of {model} within {START_TIMEOUT_S:.0f} s")


def _request(model: str, port: int, credentials_file: Path) -> StreamRequest | None:
    credentials = load_credentials(credentials_file)
    if credentials is None:
        return None
    return run_request(
        Address(LOOPBACK, port),
        account=credentials.account_id,
        api_token=credentials.api_token,
        model=model,
        inputs={"prompt": PROMPT, "stream": True, "temperature": 0, "max_tokens": 64},
    )


def layout(rows: list[Row]) -> str:
    """Write the figures for people."""
    cells = [(row.model, spread(row.cold_s), spread(row.warm_s)) for row in rows]
    return table(("seconds to the first token", "cold", "warm"), cells)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    try:
        rows = [measure(model, arguments.rounds) for model in arguments.models]
    except BenchmarkError as error:
        raise SystemExit(str(error)) from error
    machine = describe_machine(1, ("torch",))
    if arguments.json:
        whole = {"machine": asdict(machine), "models": [asdict(row) for row in rows]}
        json.dump(whole, sys.stdout, indent=2)
        print()
    else:
        print(f"{machine}; median (least to most)\n\n{layout(rows)}")


if __name__ == "__main__":
    main()
