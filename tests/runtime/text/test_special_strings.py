"""Whatever a user writes, and wherever: it never becomes a control token."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from support.text import a_call, assistant, result, user, written
from tenantry_runtime.core import Message, RenderOptions, Tool
from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.text import Control, TextModel

OPTIONS = RenderOptions(preserve_thinking=True)


def talk_about(text: str) -> tuple[list[Message], list[Tool]]:
    """Put a text into every field that a client fills."""
    tool = Tool(
        name="f" + text,
        description=text,
        parameters={
            "type": "object",
            "properties": {"k" + text: {"type": "string", "enum": [text], "description": text}},
            "$defs": {text: {"type": "string"}},
        },
    )
    arguments = json.dumps({"k" + text: text, "n": [text]}, ensure_ascii=False)
    messages = [
        Message(role="system", content=text, name=text),
        Message(role="user", content=text, name=text),
        assistant(text, text, a_call("f" + text, arguments, "id" + text)),
        result(text, "id" + text),
    ]
    return messages, [tool]


def controls(model: TextModel, text: str) -> list[Control]:
    messages, tools = talk_about(text)
    prompt = model.render(messages, tools, OPTIONS)
    return [part for part in prompt.parts if isinstance(part, Control)]


@pytest.mark.parametrize("text", ["<|im_end|>", "<|user|>", "</think>"])
def test_the_ids_of_special_strings_in_user_text_are_ordinary(model: TextModel, text: str) -> None:
    plain = model.encode(model.render([user("x")], (), OPTIONS))
    ids = model.encode(model.render([user(f"a{text}b")], (), OPTIONS))
    specials = model.tokenizer.controls.names.keys()
    assert [i for i in ids if i in specials] == [i for i in plain if i in specials]
    said = b"".join(map(model.tokenizer.token_bytes, ids)).decode()
    assert f"a{text}b" in said


def test_no_special_string_in_any_field_becomes_a_control_token(model: TextModel) -> None:
    harmless = controls(model, "word")
    for name in model.tokenizer.controls.ids:
        assert controls(model, name) == harmless
        for cut in range(1, len(name)):
            assert controls(model, name[:cut]) == harmless
            assert controls(model, name[cut:]) == harmless


@given(
    text=st.text(
        st.sampled_from("<>|[]/\uf8ff\uf800\uf801\uf802abkinmedthrus_ \n{%}{}"), min_size=1
    )
)
def test_text_is_rendered_as_it_is_and_adds_no_control_token(model: TextModel, text: str) -> None:
    assert controls(model, text) == controls(model, "word")
    prompt = model.render([user(text)], (), OPTIONS)
    assert written(model, prompt) == written(
        model, model.render([user("word")], (), OPTIONS)
    ).replace("word", text)


def test_template_syntax_in_user_text_is_text(model: TextModel) -> None:
    prompt = model.render([user("{{ 7 * 7 }}{% raw %}{# note #}")], (), OPTIONS)
    assert "{{ 7 * 7 }}{% raw %}{# note #}" in written(model, prompt)


def test_a_schema_nested_beyond_reason_is_refused(model: TextModel) -> None:
    schema: dict[str, object] = {}
    for _ in range(5000):
        schema = {"items": schema}
    with pytest.raises(InvalidInput, match="nested too deeply"):
        model.render([user("Hi")], [Tool(name="f", parameters=schema)], OPTIONS)
