"""The benchmark of text: it runs on what it says it does, and shows what it measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.text import KIMI_NANO
from tenantry_recipes.bench import text as bench
from tenantry_recipes.bench.spread import Spread
from tenantry_runtime.core import RenderOptions
from tenantry_runtime.errors import CheckpointError


def test_every_text_layer_is_measured_on_a_conversation_of_that_length() -> None:
    figures = [
        bench.measure(name, text, num_tokens=600, num_rounds=2)
        for name, text in bench.text_layers(KIMI_NANO)
    ]

    # Kimi's own tokenizer was given as the other one
    assert [each.name.partition(",")[0].rpartition("/")[2] for each in figures] == [
        *("kimi-k2.6", "kimi-k2.6", "glm-5.2"),
    ]
    for each in figures:
        assert 600 <= each.num_tokens < 900
        assert min(each.render_ms.least, each.tokenize_ms.least, each.read_us.least) > 0


def test_a_conversation_has_tools_thinking_calls_and_results() -> None:
    (_, text), *_ = bench.text_layers()
    messages = bench.conversation(text, 1000)

    roles = [message.role for message in messages]
    assert roles[:5] == ["system", "user", "assistant", "tool", "assistant"]
    assert roles[-1] == "user"
    calling = messages[2]
    assert calling.reasoning and calling.tool_calls
    assert messages[3].tool_call_id == calling.tool_calls[0].id
    # it is what the model would have said: the answer goes on from the prompt
    assert len(text.encode(text.render(messages, bench.TOOLS, RenderOptions()))) >= 1000


def test_a_report_adds_what_a_request_waits_for() -> None:
    one = Spread.of([1.0])
    figures = bench.Figures(
        name="m",
        num_messages=3,
        num_tokens=4000,
        render_ms=one.scaled(2),
        tokenize_ms=one.scaled(3),
        read_us=one,
    )

    row = bench.report([figures]).splitlines()[2]

    assert row.split("|")[6].strip() == "5.00"


def test_a_directory_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tiktoken\.model"):
        list(bench.text_layers(tmp_path))
