"""The samples run as they are, against a server that answers like the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
