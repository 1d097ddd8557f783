"""What the documentation says of limits, and of requests without an answer, is what they are."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tenantry_runtime.edge.control import ControlLimits
from tenantry_runtime.edge.control.modules import MAX_PATH_BYTES
from tenantry_runtime.edge.control.source_check import MAX_SOURCE_BYTES
from tenantry_runtime.edge.control.upload_slots import UploadSlots
from tenantry_runtime.edge.control.versions import NUM_DEPLOYMENTS
from tenantry_runtime.edge.worker_routes import RouteLimits, pages
from tenantry_runtime.edge.worker_routes.limits import (
    MAX_HEADERS,
    MAX_INLINE_BYTES,
    MAX_RESPONSE_HEADER_BYTES,
)
from tenantry_runtime.tenancy import kv, kv_entry, kv_namespaces, secrets
from tenantry_runtime.tenancy.workers import changes, names, triggers
from tenantry_runtime.workers.bindings.services import MAX_DEPTH
from tenantry_runtime.workers.cron.runner import NUM_RUNNING
from tenantry_runtime.workers.cron.waiting import MAX_RUNNING_EACH
from tenantry_runtime.workers.engine.config import EngineConfig
from tenantry_runtime.workers.interface import WorkerFailed
from tenantry_runtime.workers.logs import LogLimits
from tenantry_runtime.workers.logs.broker import MAX_TAILS, MAX_TAILS_EACH
from tenantry_runtime.workers.logs.trace import MAX_LOG_CHARS
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import WorkerLimits

DOCS = Path(__file__).parents[4] / "docs"
TEXT = (DOCS / "workers-serving.md").read_text()

INVOCATION, ENGINE, ROUTE, LOGS = WorkerLimits(), EngineConfig(), RouteLimits(), LogLimits()
UPLOAD = ControlLimits()
SLOTS = inspect.signature(UploadSlots).parameters


def seconds(number: float) -> str:
    return f"{number:g} s"


def size(num_bytes: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if num_bytes % (1 << shift) == 0:
            return f"{num_bytes >> shift} {unit}"
    return f"{num_bytes // 1_000_000} MB"


def limits_of(page: str) -> list[tuple[str, str]]:
    """Return the first two columns of a page's limits."""
    section = (DOCS / page).read_text().partition("\n## Limits\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| ([^|]+) \| ([^|]+) \|", section, re.MULTILINE)


SERVING = [
    ("CPU time", seconds(INVOCATION.cpu_ms / 1000)),
    ("time until the response's end", seconds(INVOCATION.wall_s)),
    ("`wait_until` after that", seconds(INVOCATION.wait_until_s)),
    ("calls of bindings and `fetch`", f"{INVOCATION.subrequests}"),
    ("of those, open requests at one time", f"{INVOCATION.connections}"),
    ("workers that call workers", f"{MAX_DEPTH} deep"),
    ("response", size(INVOCATION.response_bytes)),
    ("its headers", size(MAX_RESPONSE_HEADER_BYTES)),
    ("lines that it prints", f"{INVOCATION.log_lines}, of {size(MAX_LOG_CHARS)} together"),
    ("memory", size(INVOCATION.memory_bytes)),
    ("invocations at one time", f"{INVOCATION.concurrency}"),
    (
        "import",
        f"{seconds(ENGINE.load_cpu_ms / 1000)} of CPU time, {seconds(ENGINE.load_s)} in all",
    ),
    ("without an invocation", seconds(ENGINE.idle_s)),
    ("isolates of a version", f"{ENGINE.max_isolates_each}"),
    ("of an edge", f"{ENGINE.max_isolates}"),
    ("idle ones of an edge together", size(ENGINE.idle_memory_bytes)),
    (
        "invocations of a version that wait",
        f"{ENGINE.queue_length}, for {seconds(ENGINE.queue_s)}",
    ),
    ("body", size(ROUTE.max_body_bytes)),
    ("URL", size(ROUTE.max_url_bytes)),
    ("headers", f"{size(ROUTE.max_header_bytes)}, {MAX_HEADERS} of them"),
    ("a client that sends nothing of its body", seconds(ROUTE.body_timeout_s)),
    ("a worker that reads nothing of it", seconds(ROUTE.unread_timeout_s)),
    ("a client that takes nothing of the response", seconds(ROUTE.stall_timeout_s)),
    ("open requests of an edge", f"{ROUTE.max_requests}"),
    ("of an account", f"{ROUTE.max_requests_each}"),
    ("files together", size(UPLOAD.upload_bytes)),
    ("files", f"{UPLOAD.modules}"),
    ("time to send it", seconds(UPLOAD.upload_timeout_s)),
    ("import", f"{seconds(UPLOAD.startup_cpu_ms / 1000)} of CPU time"),
    ("bindings", f"{names.MAX_BINDINGS}"),
    ("a variable", size(names.MAX_VARIABLE_BYTES)),
    ("a secret", size(secrets.MAX_SECRET_BYTES)),
    (
        "uploads, long values of KV, and downloads of a worker's files, that an edge has in memory at one time",
        f"{SLOTS['max_held'].default}, {SLOTS['max_of_account'].default} of an account",
    ),
    ("workers", f"{changes.MAX_WORKERS}"),
    ("versions of a worker that are kept", f"{changes.MAX_VERSIONS}"),
    ("deployments of a worker that are kept", f"{changes.MAX_DEPLOYMENTS}"),
    ("routes of a worker", f"{triggers.MAX_ROUTES}"),
    ("cron triggers of a worker", f"{triggers.MAX_SCHEDULES}"),
    ("cron triggers that an edge runs at one time", f"{MAX_RUNNING_EACH}, of {NUM_RUNNING}"),
    ("files of all versions", size(changes.MAX_ACCOUNT_BYTES)),
    ("KV namespaces", f"{kv_namespaces.MAX_NAMESPACES}"),
    ("all that is in them", size(kv.MAX_ACCOUNT_BYTES)),
    (
        "a key, its metadata, its value",
        f"{kv_entry.MAX_KEY_BYTES} bytes, {kv_entry.MAX_METADATA_BYTES} bytes, "
        f"{size(kv_entry.MAX_VALUE_BYTES)}",
    ),
    ("tails of a worker at one time", f"{MAX_TAILS}, {MAX_TAILS_EACH} of all workers"),
    ("records of a worker in a second", f"{LOGS.records_per_s}"),
    (
        "of those, of invocations that went well and said nothing",
        f"{LOGS.plain_records_per_s}",
    ),
    ("a worker's newer file, and as much in its older one", size(LOGS.file_bytes)),
    ("all of an account", size(LOGS.account_bytes)),
    ("all of an edge", size(LOGS.total_bytes)),
    ("age", f"{LOGS.max_age_s / 86400:g} days"),
]


WRITING = [
    ("of an invocation", "by default"),
    (
        "CPU time (`limits.cpu_ms`, at most 300,000)",
        seconds(INVOCATION.cpu_ms / 1000),
    ),
    ("time, to the response's end", seconds(INVOCATION.wall_s)),
    ("`wait_until` after the response", seconds(INVOCATION.wait_until_s)),
    (
        "calls of bindings and requests (`limits.subrequests`, at most 10,000)",
        f"{INVOCATION.subrequests:,}, outbound {INVOCATION.connections} at a time",
    ),
    ("response", size(INVOCATION.response_bytes)),
    ("lines of log", f"{INVOCATION.log_lines}"),
    (
        "memory",
        f"{size(INVOCATION.memory_bytes)}, the interpreter and all requests together",
    ),
    ("requests at one time", f"{INVOCATION.concurrency}"),
    (
        "import of the main module, at the upload",
        f"{seconds(UPLOAD.startup_cpu_ms / 1000)} of CPU time",
    ),
    ("files", size(UPLOAD.upload_bytes)),
]

DEPLOYING = [
    ("what", "how much"),
    (
        "an upload",
        f"{size(UPLOAD.upload_bytes)}, {UPLOAD.modules:,} files, paths of {MAX_PATH_BYTES} bytes",
    ),
    ("a Python source of the worker's own", size(MAX_SOURCE_BYTES)),
    (
        "bindings of a version",
        f"{names.MAX_BINDINGS}; a variable {size(names.MAX_VARIABLE_BYTES)}; "
        f"a secret {size(secrets.MAX_SECRET_BYTES)}",
    ),
    ("workers of an account", f"{changes.MAX_WORKERS}"),
    (
        "versions of a worker",
        f"{changes.MAX_VERSIONS}: then the oldest goes that no kept deployment names",
    ),
    (
        "deployments of a worker",
        f"the latest {changes.MAX_DEPLOYMENTS} are kept, the latest {NUM_DEPLOYMENTS} listed",
    ),
    ("versions of a deployment", f"{changes.MAX_SHARES}"),
    (
        "routes and cron triggers of a worker",
        f"{triggers.MAX_ROUTES} and {triggers.MAX_SCHEDULES}",
    ),
    ("all versions of an account", size(changes.MAX_ACCOUNT_BYTES)),
    (
        "uploads that an edge reads at one time",
        f"{SLOTS['max_held'].default}, of one account {SLOTS['max_of_account'].default}; more wait",
    ),
]


@pytest.mark.parametrize(
    ("page", "rows"),
    [("workers-serving.md", SERVING), ("workers.md", WRITING), ("wrangler.md", DEPLOYING)],
)
def test_the_limits_that_a_page_states_are_the_limits(
    page: str, rows: list[tuple[str, str]]
) -> None:
    assert sorted(limits_of(page)) == sorted(rows)


@pytest.mark.parametrize(("table", "limits"), [("limits", RouteLimits), ("logs", LogLimits)])
def test_every_key_of_an_operators_is_named(table: str, limits: type) -> None:
    for name in limits.__annotations__:
        assert f"`workers.{table}.{name}`" in TEXT


def test_a_body_is_read_before_the_worker_hears_of_it_up_to_a_size() -> None:
    assert f"up to {size(MAX_INLINE_BYTES)} is read before" in TEXT


def test_the_page_and_the_code_have_one_table_of_what_is_told_without_an_answer() -> None:
    section = TEXT.partition("\n## When there is no answer\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\|.*", section, re.MULTILINE) == re.findall(
        r"^\|.*", pages.__doc__ or "", re.MULTILINE
    )
    for outcome in Outcome:
        told = pages.of_failure(WorkerFailed(outcome, ""), "hello", "")
        ending = rf" \| {told.status} \| {told.code} \|"
        assert len(re.findall(rf"^\| .*`{outcome}`.*{ending}", section, re.MULTILINE)) == 1
