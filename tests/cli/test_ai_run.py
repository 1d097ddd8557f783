"""`workerctl ai run`: what is asked, and what is printed where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.answers import a_chunk, a_completion, a_usage_chunk
from support.command_line import workerctl
from support.http_peer import Exchange, Peer, a_peer


def answer(exchange: Exchange) -> None:
    """Stream, or not, the answer 42 after some thinking."""
    if not exchange.inputs["stream"]:
        exchange.send_result(a_completion("42", reasoning="17 + 25"))
        return
    exchange.start_stream()
    for event in (
        a_chunk(role="assistant", reasoning="17 + 25"),
        a_chunk(content="4"),
        a_chunk(content="2"),
        a_chunk("stop"),
        a_usage_chunk(),
        "[DONE]",
    ):
        exchange.send_event(event)
    exchange.end_stream()


def asked(peer: Peer) -> dict[str, Any]:
    (exchange,) = peer.exchanges
    return exchange.inputs


@pytest.mark.parametrize("options", [[], ["--no-stream"]])
def test_the_answer_goes_to_stdout_and_usage_to_stderr(options: list[str]) -> None:
    with a_peer(answer) as peer:
        result = workerctl("ai", "run", "kimi-k2.6", "17 + 25?", *options, env=peer.environment)
    assert (result.exit_code, result.stdout) == (0, "42\n")
    (line,) = result.stderr.splitlines()
    assert line.startswith("10 prompt tokens (3 cached), 5 completion tokens (2 reasoning), ")
    assert asked(peer)["stream"] is not bool(options)
    assert peer.exchanges[0].path.endswith("/ai/run/kimi-k2.6")


def test_the_prompt_is_the_users_turn() -> None:
    with a_peer(answer) as peer:
        workerctl("ai", "run", "kimi-k2.6", "17 + 25?", env=peer.environment)
    assert asked(peer) == {"messages": [{"role": "user", "content": "17 + 25?"}], "stream": True}


def test_options_reach_the_model() -> None:
    options = ["--system", "Be brief.", "--max-tokens", "64", "--temperature", "0", "--seed", "7"]
    with a_peer(answer) as peer:
        workerctl("ai", "run", "glm-5.2", "?", *options, "--session", "ses_1", env=peer.environment)
    assert asked(peer) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "?"},
        ],
        "max_tokens": 64,
        "temperature": 0.0,
        "seed": 7,
        "stream": True,
    }
    assert peer.exchanges[0].headers["x-session-affinity"] == "ses_1"


@pytest.mark.parametrize(("option", "expected"), [("--thinking", True), ("--no-thinking", False)])
def test_thinking_can_be_turned_on_and_off(option: str, expected: bool) -> None:
    with a_peer(answer) as peer:
        workerctl("ai", "run", "kimi-k2.6", "?", option, env=peer.environment)
    assert asked(peer)["chat_template_kwargs"] == {"enable_thinking": expected}


def test_a_dash_reads_the_prompt_from_stdin() -> None:
    with a_peer(answer) as peer:
        workerctl("ai", "run", "kimi-k2.6", "-", env=peer.environment, stdin="17 + 25?\n")
    assert asked(peer)["messages"] == [{"role": "user", "content": "17 + 25?\n"}]


@pytest.mark.parametrize(("prompt", "stdin"), [("-", ""), ("-", " \n"), ("", None), (" ", None)])
def test_an_empty_prompt_is_a_mistake_and_asks_nothing(prompt: str, stdin: str | None) -> None:
    with a_peer(answer) as peer:
        result = workerctl("ai", "run", "kimi-k2.6", prompt, env=peer.environment, stdin=stdin)
    assert result.exit_code == 2
    assert "the prompt is empty" in result.stderr
    assert peer.exchanges == []


def test_json_is_the_whole_result_and_nothing_else() -> None:
    with a_peer(answer) as peer:
        result = workerctl("ai", "run", "kimi-k2.6", "?", "--json", env=peer.environment)
    printed = json.loads(result.stdout)
    assert printed["choices"][0]["message"] == {
        "role": "assistant",
        "content": "42",
        "reasoning": "17 + 25",
    }
    assert printed["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    assert result.stderr == ""


def test_an_answer_that_breaks_off_says_so_on_a_line_of_its_own() -> None:
    def script(exchange: Exchange) -> None:
        exchange.start_stream()
        exchange.send_event(a_chunk(content="4"))
        exchange.end_stream()

    with a_peer(script) as peer:
        result = workerctl("ai", "run", "kimi-k2.6", "?", env=peer.environment)
    assert (result.exit_code, result.stdout) == (1, "4\n")
    assert result.stderr == "Error: the stream ended before the answer was whole\n"


def test_an_unknown_model_is_said_with_its_near_matches() -> None:
    def script(exchange: Exchange) -> None:
        message = "No such model kimi; did you mean kimi-k2.6?"
        exchange.send_json(
            {"errors": [{"code": 5007, "message": message}], "success": False, "result": {}},
            status=400,
        )

    with a_peer(script) as peer:
        result = workerctl("ai", "run", "kimi", "?", env=peer.environment)
    assert result.exit_code == 1
    assert result.stderr == "Error: No such model kimi; did you mean kimi-k2.6? [code: 5007]\n"


def test_a_model_that_is_no_id_is_one_line_too() -> None:
    with a_peer(answer) as peer:
        result = workerctl("ai", "run", "../kimi", "?", env=peer.environment)
    assert result.exit_code == 1
    assert result.stderr == "Error: model is '../kimi'; it must be an id such as 'kimi-k2.6'\n"
    assert peer.exchanges == []
