"""The samples run as they are, against a server that answers like the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.answers import a_chunk, a_completion, a_usage_chunk
from support.http_peer import Exchange, Peer, a_peer

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def answer(exchange: Exchange) -> None:
    if not exchange.inputs["stream"]:
        exchange.send_result(a_completion("42"))
        return
    exchange.start_stream()
    for event in (a_chunk(content="4"), a_chunk(content="2"), a_chunk("stop"), a_usage_chunk()):
        exchange.send_event(event)
    exchange.send_event("[DONE]")
    exchange.end_stream()


def answer_with_a_call(exchange: Exchange) -> None:
    """Call the tool that is declared, and tell what came of it."""
    messages: list[dict[str, Any]] = exchange.inputs["messages"]
    if messages[-1]["role"] == "tool":
        exchange.send_result(a_completion(f"It is {messages[-1]['content']}."))
        return
    (declared,) = exchange.inputs["tools"]
    properties = declared["function"]["parameters"]["properties"]
    assert {name: each["type"] for name, each in properties.items()} == {
        "city": "string",
        "guests": "integer",
    }
    function = {"name": declared["function"]["name"], "arguments": '{"city": "Rome", "guests": 4}'}
    calls = [{"id": "functions.f:0", "type": "function", "function": function}]
    exchange.send_result(a_completion(None, tool_calls=calls))


def answer_in_json(exchange: Exchange) -> None:
    schema = exchange.inputs["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["city", "guests"]
    exchange.send_result(a_completion('{"city": "Rome", "guests": 4}'))


def output_of(sample: str, peer: Peer) -> str:
    ran = subprocess.run(
        [sys.executable, SAMPLES / sample],
        env={**os.environ, **peer.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""
    return ran.stdout


def test_ask_prints_an_answer_of_each_model() -> None:
    with a_peer(answer) as peer:
        printed = output_of("ask.py", peer)
    assert printed == "kimi-k2.6: 42\n  10 tokens in, 5 out\nglm-5.2: 42\n  10 tokens in, 5 out\n"


def test_stream_prints_an_answer_as_it_is_made() -> None:
    with a_peer(answer) as peer:
        printed = output_of("stream.py", peer)
    assert printed == "42\n15 tokens, finish reason 'stop'\n"


def test_tools_prints_each_call_and_what_the_model_tells() -> None:
    with a_peer(answer_with_a_call) as peer:
        printed = output_of("tools.py", peer)
    assert printed == ('{"city": "Rome", "guests": 4} -> {"id":"r4k2"}\nIt is {"id":"r4k2"}.\n')


def test_structured_prints_what_the_instance_holds() -> None:
    with a_peer(answer_in_json) as peer:
        printed = output_of("structured.py", peer)
    assert printed == "4 guests in Rome\n"
