from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from support.text import GLM_NANO, KIMI_NANO
from tenantry_runtime.errors import CheckpointError, InvalidInput
from tenantry_runtime.text.controls import MARK
from tenantry_runtime.text.template import ChatTemplate


def a_template(source: str) -> ChatTemplate:
    return ChatTemplate(source, file="x/chat_template.jinja")


def test_blocks_leave_no_white_space() -> None:
    source = "<a>\n  {% if yes %}\nb\n  {% endif %}\n{{ c }}"
    assert a_template(source).render({"yes": True, "c": "d"}) == "<a>\nb\nd"


def test_json_is_neither_escaped_for_html_nor_to_ascii() -> None:
    value = {"b": "<é&'>", "a": 1}
    assert a_template("{{ v | tojson }}").render({"v": value}) == '{"b": "<é&\'>", "a": 1}'
    assert a_template("{{ v | tojson(separators=(',', ':'), sort_keys=true) }}").render(
        {"v": value}
    ) == ('{"a":1,"b":"<é&\'>"}')


def test_loops_can_be_left() -> None:
    source = "{% for n in [1, 2, 3] %}{% if n == 2 %}{% break %}{% endif %}{{ n }}{% endfor %}"
    assert a_template(source).render({}) == "1"


def test_what_a_template_refuses_is_the_requests_fault() -> None:
    with pytest.raises(InvalidInput, match="messages: roles must alternate"):
        a_template("{{ raise_exception('roles must alternate') }}").render({})


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ nothing.at.all }}",
        "{{ 1 + 'a' }}",
    ],
)
def test_what_a_template_does_wrong_is_the_checkpoints_fault(source: str) -> None:
    with pytest.raises(CheckpointError, match=r"x/chat_template\.jinja: cannot be rendered"):
        a_template(source).render({"messages": []})


@pytest.mark.parametrize("source", ["{% if %}", "{{ a", f"a{MARK}b"])
def test_an_unusable_template_is_refused_when_loaded(source: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        a_template(source)
    assert caught.value.file == "x/chat_template.jinja"


def test_a_block_that_marks_what_to_train_on_is_its_content() -> None:
    source = "a{% generation %}b{{ c }}{% if c %}d{% endif %}{% endgeneration %}\n"
    rendered = a_template(source).render({"c": "c"})
    # its declared types are narrower than what it takes
    theirs: Any = render_jinja_template
    assert [rendered] == theirs(conversations=[[]], chat_template=source, c="c")[0]
    assert rendered == "abcd"


def test_special_tokens_have_their_names_and_become_control_strings() -> None:
    template = ChatTemplate(
        "{{ bos_token }}{{ eos_token is defined }}",
        file="x",
        special_tokens={"bos_token": "[BOS]"},
    )
    assert template.render({}) == "[BOS]False"


def test_a_template_may_ask_for_the_date() -> None:
    template = ChatTemplate(
        "{{ strftime_now('%d %b %Y') }}", file="x", now=lambda: datetime(2026, 4, 1)
    )
    assert template.render({}) == "01 Apr 2026"


@pytest.mark.parametrize("directory", [KIMI_NANO, GLM_NANO])
def test_transformers_renders_the_nano_templates_alike(directory: Path) -> None:
    source = (directory / "chat_template.jinja").read_text()
    function = {"name": "f", "arguments": {"a": [1, "é"], "b": "text"}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " a\n"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "why",
            "tool_calls": [{"id": "functions.f:0", "function": function}],
        },
        {"role": "tool", "tool_call_id": "functions.f:0", "content": "1"},
        {"role": "assistant", "content": "done"},
    ]
    context: dict[str, Any] = {
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "add_generation_prompt": True,
    }
    # its declared types are narrower than what it takes
    theirs: Any = render_jinja_template
    for thinking in (True, False):
        options = {**context, "thinking": thinking, "enable_thinking": thinking}
        rendered, _ = theirs(conversations=[messages], chat_template=source, **options)
        assert [a_template(source).render({"messages": messages, **options})] == rendered
