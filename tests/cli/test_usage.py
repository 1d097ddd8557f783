from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from support.ledgers import NOON_MS, a_record
from tenantry_cli.main import main
from tenantry_runtime.tenancy import open_store
from tenantry_runtime.tenancy.ledger.recording import record_usage


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    async def fill() -> None:
        async with open_store(tmp_path) as store:
            await store.accounts.create("alice")
            records = [a_record("r-1", output=1500), a_record("r-2", ended_ms=NOON_MS + 86_400_000)]
            await record_usage(store.database, records)

    anyio.run(fill)
    return tmp_path


def run(state_dir: Path, *arguments: str) -> str:
    result = CliRunner().invoke(main, ["usage", "--state-dir", str(state_dir), *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_days_are_lines_with_a_total(state_dir: Path) -> None:
    lines = [line.split() for line in run(state_dir).splitlines()]

    assert lines[0] == [
        "DAY",
        "REQUESTS",
        "INPUT",
        "CACHED",
        "OUTPUT",
        "REASONING",
        "NEURONS",
        "USD",
    ]
    assert [line[:5] for line in lines[1:]] == [
        ["2027-01-15", "1", "100", "64", "1,500"],
        ["2027-01-16", "1", "100", "64", "9"],
        ["total", "2", "200", "128", "1,509"],
    ]


def test_sums_are_exact_in_json(state_dir: Path) -> None:
    [tenant] = json.loads(run(state_dir, "--by", "tenant", "--to", "2027-01-15", "--json"))

    cost = 36 * 7 + 64 * 3 + 1500 * 11
    assert tenant == {
        "tenant": "alice",
        "requests": 1,
        "input_tokens": 100,
        "cached_tokens": 64,
        "output_tokens": 1500,
        "reasoning_tokens": 0,
        "neurons": cost / 11_000_000,
        "cost_pico_usd": cost,
    }


def test_requests_are_listed_one_by_one(state_dir: Path) -> None:
    lines = run(state_dir, "--requests").splitlines()
    documents = json.loads(run(state_dir, "--requests", "--limit", "1", "--json"))

    assert [line.split()[2] for line in lines[1:]] == ["r-2", "r-1"]
    assert documents[0]["request"] == "r-2"
    assert documents[0]["ended"] == "2027-01-16T12:00:00.000Z"
    assert documents[0]["prices_pico_usd"] == {"input": 7, "cached": 3, "output": 11}


@pytest.mark.parametrize(
    ("options", "said"),
    [([], "nothing was used"), (["--requests"], "no requests")],
)
def test_nothing_is_said_to_be_nothing(state_dir: Path, options: list[str], said: str) -> None:
    assert run(state_dir, "--tenant", "bob", *options).strip() == said


def test_a_period_that_ends_before_it_begins_is_refused(state_dir: Path) -> None:
    arguments = [
        "usage",
        "--state-dir",
        str(state_dir),
        "--from",
        "2027-01-02",
        "--to",
        "2027-01-01",
    ]

    result = CliRunner().invoke(main, arguments)

    assert result.exit_code == 2
    assert "--to is before --from" in result.output
