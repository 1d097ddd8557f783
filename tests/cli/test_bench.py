"""`workerctl bench replay`: a trace goes in, a table, JSON or a picture comes out."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from support.answers import a_chunk, a_usage_chunk
from support.command_line import workerctl
from support.http_peer import Exchange, a_peer
from support.replaying import a_line, lines_of

NOTHING: dict[str, str] = {}
"""Configured in the environment."""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two conversations of two turns: 513 tokens, then the same block and 512 and a token more."""
    turns = [
        a_line(timestamp=0, input_length=1025, hash_ids=[0, 1, 2]),
        a_line(timestamp=5000, input_length=1025, hash_ids=[0, 3, 4]),
        a_line(timestamp=20_000, input_length=1537, hash_ids=[0, 1, 5, 6]),
        a_line(timestamp=25_000, input_length=1537, hash_ids=[0, 3, 7, 8]),
    ]
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"\n".join(lines_of(*turns)))
    return path


def test_a_simulation_prints_a_line_for_each_routing(trace: Path) -> None:
    options = ["--members", "2", "--routing", "affinity", "--routing", "infinite"]
    result = workerctl("bench", "replay", str(trace), "--simulate", *options, env=NOTHING)
    assert result.exit_code == 0, result.stderr
    header, affinity, infinite = result.stdout.splitlines()
    assert header.split()[:2] == ["ROUTING", "PREFILL"]
    assert affinity.split()[:3] == ["affinity", "2", "686,000"]
    # with sessions kept apart or not: both turns find what the first ones had
    assert infinite.split()[:2] == ["infinite", "2"]
    # two blocks for each second turn, one for the second conversation's first
    assert f"{(2 * 1024 + 512) / (2 * 1025 + 2 * 1537):.2%}" in infinite


def test_json_has_what_the_table_has_and_more(trace: Path) -> None:
    result = workerctl(
        "bench", "replay", str(trace), "--simulate", "--members", "1", "--json", env=NOTHING
    )
    (run,) = json.loads(result.stdout)["runs"]
    assert (run["routing"], run["prefill_members"], run["decode_members"]) == ("affinity", 1, 1)
    assert run["cache_tokens_per_member"] == 686_000
    assert run["requests"] == 4
    assert run["cached_tokens"] == 2 * 1024 + 512
    assert run["hit_rate"] == pytest.approx(run["cached_tokens"] / run["prompt_tokens"])
    assert set(run["ttft_s"]) == set(run["tpot_s"]) == {"p50", "p90", "p99"}
    assert [member["requests"] for member in run["members"]] == [4]


def test_scale_keeps_hit_rate_and_cache_in_proportion(trace: Path) -> None:
    rates = []
    for scale in ("1", "8"):
        options = ["--members", "1", "--scale", scale, "--json"]
        result = workerctl("bench", "replay", str(trace), "--simulate", *options, env=NOTHING)
        (run,) = json.loads(result.stdout)["runs"]
        rates.append(run["hit_rate"])
        assert run["cache_tokens_per_member"] == 686_000
    assert rates[0] == pytest.approx(rates[1], abs=0.01)


def test_the_plot_is_svg(trace: Path, tmp_path: Path) -> None:
    picture = tmp_path / "replay.svg"
    result = workerctl(
        "bench", "replay", str(trace), "--simulate", "--plot", str(picture), env=NOTHING
    )
    assert result.exit_code == 0, result.stderr
    assert ElementTree.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_costs_come_from_a_file(trace: Path, tmp_path: Path) -> None:
    costs = tmp_path / "costs.toml"
    costs.write_text("[prefill]\nfixed_s = 7\ntoken_s = 0\nread_s = 0\n")
    options = ["--costs", str(costs), "--limit", "1", "--decode-members", "0", "--json"]
    result = workerctl("bench", "replay", str(trace), "--simulate", *options, env=NOTHING)
    (run,) = json.loads(result.stdout)["runs"]
    assert run["ttft_s"]["p50"] == 7.0


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"\n".join(lines_of(a_line(), a_line(output_length=-1))))
    result = workerctl("bench", "replay", str(path), "--simulate", env=NOTHING)
    assert result.exit_code == 1
    assert result.stderr == "Error: line 2: output_length: -1 is negative\n"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--members", "2"], "--members needs --simulate"),
        (["--tenants", "2"], "--tenants needs --simulate"),
        (["--simulate", "--url", "http://x"], "--url has no meaning with --simulate"),
        (["--simulate", "--plot", "x.png"], "--plot draws SVG"),
        (["--simulate", "--routing", "random"], "random"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    trace: Path, options: list[str], problem: str
) -> None:
    result = workerctl("bench", "replay", str(trace), *options, env=NOTHING)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_a_scale_that_does_not_divide_a_block_is_refused(trace: Path) -> None:
    result = workerctl("bench", "replay", str(trace), "--simulate", "--scale", "3", env=NOTHING)
    assert result.exit_code == 1
    assert "scale is 3; it must divide" in result.stderr


def answer(exchange: Exchange) -> None:
    exchange.start_stream()
    for event in (a_chunk(content="4"), a_chunk("stop"), a_usage_chunk(), "[DONE]"):
        exchange.send_event(event)
    exchange.end_stream()


def test_a_running_system_is_asked_with_the_usual_configuration(trace: Path) -> None:
    with a_peer(answer) as peer:
        options = ["--scale", "64", "--speed", "1000", "--model", "glm-5.2"]
        result = workerctl("bench", "replay", str(trace), *options, env=peer.environment)
    assert result.exit_code == 0, result.stderr
    assert {exchange.path.rpartition("/")[2] for exchange in peer.exchanges} == {"glm-5.2"}
    assert len({exchange.headers["x-session-affinity"] for exchange in peer.exchanges}) == 2
    _, measured = result.stdout.splitlines()
    # the server says 3 of 10 tokens each time
    assert measured.split()[:5] == ["measured", "-", "-", "4", "30.00%"]


def test_options_name_another_system(trace: Path) -> None:
    with a_peer(answer) as peer:
        named = ["--url", peer.base_url, "--account", "acme", "--token", "secret"]
        result = workerctl(
            "bench", "replay", str(trace), *named, "--limit", "1", "--scale", "64", env=NOTHING
        )
    assert result.exit_code == 0, result.stderr
    (exchange,) = peer.exchanges
    assert "/accounts/acme/" in exchange.path
    assert exchange.headers["authorization"] == "Bearer secret"
    assert "secret" not in result.output


def test_failed_requests_are_counted_and_make_it_fail(trace: Path) -> None:
    def refuse(exchange: Exchange) -> None:
        error = {"errors": [{"code": 3040, "message": "full"}], "success": False}
        exchange.send_json(error, status=429)

    with a_peer(refuse) as peer:
        options = ["--scale", "64", "--speed", "1000"]
        result = workerctl("bench", "replay", str(trace), *options, env=peer.environment)
    assert result.exit_code == 1
    assert "4 requests failed: CapacityExceeded" in result.stderr


def test_the_runtime_is_loaded_when_a_replay_is_asked_for() -> None:
    result = workerctl("bench", "replay", "--help", env=NOTHING)
    assert result.exit_code == 0
    assert "--simulate" in result.stdout
