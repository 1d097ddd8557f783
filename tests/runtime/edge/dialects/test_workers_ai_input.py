"""Parameters of `/ai/run`: what each becomes, and what is refused with its name."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import msgspec
import pytest

from support.plain_text import GLM, KIMI
from support.requests import SEED, USER, a_body, a_call, parsed, parsed_body
from tenantry_runtime.core import (
    JsonFormat,
    RenderOptions,
    ResponseFormat,
    Sampling,
    TextFormat,
    Tool,
    ToolChoice,
)
from tenantry_runtime.edge.dialects.workers_ai import RunInput
from tenantry_runtime.errors import InvalidInput

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def test_a_request_that_says_nothing_gets_the_models_defaults() -> None:
    request = parsed()

    assert request.model == "@cf/moonshotai/kimi-k2.6"
    assert request.sampling == Sampling(seed=SEED, temperature=0.6, top_p=0.95)
    assert request.options == RenderOptions()
    assert (request.tools, request.stream, request.include_usage) == ((), False, True)
    assert (request.prompt, request.session) == (None, None)


def test_every_sampling_parameter_arrives() -> None:
    request = parsed(
        temperature=0, top_p=0.5, top_k=40, min_p=0.1, seed=7, max_tokens=100, stop=["a", "b"]
    )

    assert request.sampling == Sampling(
        seed=7, temperature=0, top_p=0.5, top_k=40, min_p=0.1, max_tokens=100, stop=("a", "b")
    )


def test_a_prompt_stands_instead_of_messages() -> None:
    request = parsed(prompt="hi")

    assert (request.prompt, request.messages) == ("hi", ())


def test_null_is_the_same_as_no_field() -> None:
    nulls: dict[str, Any] = dict.fromkeys(RunInput.__struct_fields__)
    # where null says something
    del nulls["reasoning_effort"]

    assert parsed(**{**nulls, "messages": [USER]}) == parsed()


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_the_answers_length_has_two_names(name: str) -> None:
    assert parsed_body(a_body(**{name: 5})).sampling.max_tokens == 5


def test_one_stop_string_needs_no_list() -> None:
    assert parsed(stop="\n").sampling.stop == ("\n",)
    assert parsed(stop=[]).sampling.stop == ()


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"thinking": False}, RenderOptions(thinking=False)),
        ({"enable_thinking": True}, RenderOptions(thinking=True)),
        ({"thinking": True, "enable_thinking": True}, RenderOptions(thinking=True)),
        ({"preserve_thinking": True}, RenderOptions(preserve_thinking=True)),
        ({"clear_thinking": False}, RenderOptions(preserve_thinking=True)),
        ({"clear_thinking": True}, RenderOptions(preserve_thinking=False)),
    ],
    ids=str,
)
def test_thinking_is_controlled_under_every_familys_name(
    fields: dict[str, bool], options: RenderOptions
) -> None:
    assert parsed(chat_template_kwargs=fields).options == options


def test_a_null_effort_is_none_and_no_effort_is_the_models_choice() -> None:
    assert parsed(reasoning_effort="low").options.reasoning_effort == "low"
    assert parsed(reasoning_effort=None).options.reasoning_effort == "none"
    assert parsed().options.reasoning_effort is None


def test_streams_carry_usage_unless_told_not_to() -> None:
    assert parsed(stream=True).include_usage
    assert parsed(stream=True, stream_options={}).include_usage
    assert parsed(stream=True, stream_options={"include_usage": True}).include_usage
    assert not parsed(stream=True, stream_options={"include_usage": False}).include_usage


def test_a_header_beats_the_cache_key_as_the_session() -> None:
    assert parsed_body(a_body(prompt_cache_key="key"), session="ses_1").session == "ses_1"
    assert parsed(prompt_cache_key="key").session == "key"


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "u"},
        {"store": True},
        {"metadata": {"any": ["thing"]}},
        {"service_tier": "auto"},
        {"safety_identifier": "s"},
        {"options": {"rejectIfBusy": False}},
        {"n": 1},
        {"frequency_penalty": 0},
        {"presence_penalty": 0.0},
        {"logit_bias": {}},
        {"logprobs": False},
        {"parallel_tool_calls": True},
        {"response_format": {"type": "text"}},
        {"modalities": ["text"]},
        {"verbosity": "medium"},
        {"prompt_cache_retention": "24h"},
        {"repetition_penalty": 1},
        {"top_logprobs": 0},
        {"model": "kimi-k2.6"},
        {"model": "@cf/moonshotai/kimi-k2.6"},
        {"tool_choice": "auto"},
        {"stream_options": {"include_obfuscation": False}},
    ],
    ids=str,
)
def test_what_cannot_change_the_answer_is_accepted(fields: dict[str, Any]) -> None:
    assert parsed(**fields) == parsed()


@pytest.mark.parametrize(
    "form",
    [
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
        },
        {"name": "f", "description": "d", "parameters": {"type": "object"}},
        {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}},
    ],
    ids=["openai", "workers ai", "flat with type"],
)
def test_tools_come_in_every_form(form: dict[str, Any]) -> None:
    expected = Tool(name="f", description="d", parameters={"type": "object"})

    assert parsed(tools=[form]).tools == (expected,)


def test_a_tool_needs_no_parameters() -> None:
    assert parsed(tools=[{"name": "f"}]).tools == (Tool(name="f"),)


def test_tool_choice_none_takes_the_tools_away() -> None:
    request = parsed(tools=[TOOL], tool_choice="none")

    assert request.tools == ()
    assert request.tool_choice == ToolChoice(mode="none")


@pytest.mark.parametrize(
    ("asked", "choice"),
    [
        ("auto", ToolChoice()),
        ("required", ToolChoice(mode="required")),
        (
            {"type": "function", "function": {"name": "f"}},
            ToolChoice(mode="required", name="f"),
        ),
        ({"type": "function", "name": "f"}, ToolChoice(mode="required", name="f")),
    ],
    ids=str,
)
def test_a_tool_may_be_required(asked: Any, choice: ToolChoice) -> None:
    request = parsed(tools=[TOOL, {"name": "g"}], tool_choice=asked)

    assert request.tool_choice == choice
    assert [tool.name for tool in request.tools] == ["f", "g"]


def test_one_call_at_a_time_may_be_asked_for() -> None:
    assert parsed(tools=[TOOL]).parallel_tool_calls
    assert not parsed(tools=[TOOL], parallel_tool_calls=False).parallel_tool_calls


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"type": "text"}, TextFormat()),
        ({"type": "json_object"}, JsonFormat()),
        ({"type": "json_schema", "json_schema": SCHEMA}, JsonFormat(schema=SCHEMA)),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
            JsonFormat(schema=SCHEMA, name="x"),
        ),
        (
            {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strict": False}},
            JsonFormat(schema=SCHEMA, strict=False),
        ),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, JsonFormat(name="x")),
        ({"type": "json_schema", "json_schema": {}}, JsonFormat()),
        # as Cloudflare's provider for the AI SDK asks for an object without a schema
        ({"type": "json_schema"}, JsonFormat()),
    ],
    ids=[
        "text",
        "object",
        "bare",
        "envelope",
        "envelope without name",
        "envelope without schema",
        "empty",
        "nothing",
    ],
)
def test_the_form_of_an_answer_is_asked_for_in_either_dialect(
    asked: dict[str, Any], expected: ResponseFormat
) -> None:
    assert parsed(response_format=asked).response_format == expected


def test_penalties_and_biases_arrive() -> None:
    sampling = parsed(
        frequency_penalty=-2,
        presence_penalty=0.5,
        repetition_penalty=1.1,
        logit_bias={"5": -100, "999": 1.5},
    ).sampling

    assert (sampling.frequency_penalty, sampling.presence_penalty) == (-2, 0.5)
    assert sampling.repetition_penalty == 1.1
    assert sampling.logit_bias == ((5, -100), (999, 1.5))


def test_log_probabilities_are_told_with_as_many_alternatives_as_asked_for() -> None:
    assert parsed().sampling.top_logprobs is None
    assert parsed(logprobs=True).sampling.top_logprobs == 0
    assert parsed(logprobs=True, top_logprobs=20).sampling.top_logprobs == 20


def test_up_to_eight_answers_may_be_asked_for() -> None:
    assert parsed().num_choices == 1
    assert parsed(n=8).num_choices == 8


@pytest.mark.parametrize(("kind", "thinks"), [("enabled", True), ("disabled", False)])
def test_thinking_has_the_form_of_the_models_own_apis_too(kind: str, thinks: bool) -> None:
    assert parsed(thinking={"type": kind}).options == RenderOptions(thinking=thinks)


@pytest.mark.parametrize("fields", [{"n": 2}, {"logprobs": True}], ids=str)
def test_what_the_older_form_of_answers_has_no_place_for_is_refused(fields: dict[str, Any]) -> None:
    older = msgspec.structs.replace(KIMI, result_shape="response")

    assert parsed_body(a_body(), entry=older).num_choices == 1
    with pytest.raises(InvalidInput, match="have no place for it"):
        parsed_body(a_body(**fields), entry=older)


# field, as it must be named; and a body that has nothing else wrong
@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("max_tokens", {"max_tokens": 0}),
        ("max_tokens", {"max_tokens": -1}),
        ("max_tokens", {"max_tokens": 1.5}),
        ("max_tokens", {"max_tokens": "5"}),
        ("max_tokens", {"max_tokens": True}),
        ("max_tokens", {"max_tokens": 1 << 31}),
        ("max_tokens", {"max_tokens": 10**400}),
        ("max_completion_tokens", {"max_tokens": 5, "max_completion_tokens": 6}),
        ("temperature", {"temperature": -0.1}),
        ("temperature", {"temperature": 2.1}),
        ("temperature", {"temperature": "hot"}),
        ("top_p", {"top_p": 1.1}),
        ("top_k", {"top_k": 0}),
        ("min_p", {"min_p": 2}),
        ("seed", {"seed": -1}),
        ("seed", {"seed": 1 << 63}),
        ("stop", {"stop": ["a"] * 5}),
        ("stop", {"stop": ""}),
        ("stop[1]", {"stop": ["a", ""]}),
        ("stop[0]", {"stop": [1]}),
        ("stream", {"stream": "yes"}),
        ("stream_options.include_use", {"stream_options": {"include_use": True}}),
        ("stream_options.include_obfuscation", {"stream_options": {"include_obfuscation": True}}),
        ("chat_template_kwargs.think", {"chat_template_kwargs": {"think": True}}),
        (
            "chat_template_kwargs.enable_thinking",
            {"chat_template_kwargs": {"thinking": True, "enable_thinking": False}},
        ),
        (
            "chat_template_kwargs.clear_thinking",
            {"chat_template_kwargs": {"preserve_thinking": True, "clear_thinking": True}},
        ),
        ("options.cacheTtl", {"options": {"cacheTtl": 5}}),
        ("model", {"model": "glm-5.2"}),
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tool_choice": "any", "tools": [TOOL]}),
        ("tool_choice", {"tool_choice": {"type": "function", "function": {"name": "f"}}}),
        ("tool_choice", {"tool_choice": {"type": "function"}, "tools": [TOOL]}),
        ("tool_choice.type", {"tool_choice": {"type": "custom", "custom": {}}, "tools": [TOOL]}),
        ("tool_choice.type", {"tool_choice": {"type": "allowed_tools"}, "tools": [TOOL]}),
        ("tools[0].function.name", {"tools": [{"function": {"name": "a tool"}}]}),
        ("tools[0].function.name", {"tools": [{"function": {}}]}),
        ("tools[0].function.description", {"tools": [{"function": {"name": "f", "description": False}}]}),
        ("tools[0].function.parameters", {"tools": [{"function": {"name": "f", "parameters": []}}]}),
        ("tools[0].type", {"tools": [{"type": "web_search"}]}),
        ("tools[0]", {"tools": [{"type": "function"}]}),
        ("tools[0]", {"tools": [{**TOOL, "name": "g"}]}),
        ("tools[1]", {"tools": [TOOL, {"name": "f"}]}),
        ("tools[0].type", {"tools": [{"type": "custom", "custom": {"name": "f"}}]}),
        ("n", {"n": 9}),
        ("n", {"n": 0}),
        ("n", {"n": True}),
        ("frequency_penalty", {"frequency_penalty": 2.1}),
        ("frequency_penalty", {"frequency_penalty": False}),
        ("presence_penalty", {"presence_penalty": -2.1}),
        ("repetition_penalty", {"repetition_penalty": 0}),
        ("repetition_penalty", {"repetition_penalty": 2.1}),
        ("logit_bias", {"logit_bias": {"a": 1}}),
        ("logit_bias", {"logit_bias": {"-1": 1}}),
        ("logit_bias", {"logit_bias": {str(token): 0 for token in range(1025)}}),
        ("logit_bias[...]", {"logit_bias": {"1": 101}}),
        ("logit_bias.1000", {"logit_bias": {"1000": 1}}),
        ("logit_bias.01", {"logit_bias": {"1": 1, "01": 1}}),
        ("logprobs", {"logprobs": 0}),
        ("top_logprobs", {"top_logprobs": 2}),
        ("top_logprobs", {"logprobs": False, "top_logprobs": 2}),
        ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
        ("parallel_tool_calls", {"parallel_tool_calls": 0}),
        ("response_format.type", {"response_format": {"type": "xml"}}),
        ("response_format.json_schema", {"response_format": {"type": "json_schema", "json_schema": []}}),
        (
            "response_format.json_schema.schema",
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": []}}},
        ),
        (
            "response_format.json_schema.title",
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "title": "x"}}},
        ),
        ("response_format", {"response_format": "json"}),
        ("modalities", {"modalities": ["text", "audio"]}),
        ("verbosity", {"verbosity": "low"}),
        ("audio", {"audio": {"voice": "alloy", "format": "wav"}}),
        ("prediction", {"prediction": {"type": "content", "content": "a"}}),
        ("web_search_options", {"web_search_options": {}}),
        ("functions", {"functions": [{"name": "f"}]}),
        ("function_call", {"function_call": "auto"}),
        ("thinking.type", {"thinking": {"type": "maybe"}}),
        (
            "thinking",
            {"thinking": {"type": "enabled"}, "chat_template_kwargs": {"thinking": False}},
        ),
        ("prompt_cache_key", {"prompt_cache_key": "x" * 257}),
        ("prompt_cache_key", {"prompt_cache_key": "a\nb"}),
        ("requests", {"requests": []}),
        ("maxTokens", {"maxTokens": 5}),
        ("prompt", {"prompt": ""}),
        ("prompt", {"prompt": ["a"]}),
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_parameter_is_refused_by_name(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parsed(**fields)

    assert caught.value.field == field
    assert caught.value.problem


@pytest.mark.parametrize(
    "body",
    [b"{}", a_body(prompt="hi", messages=[USER]), b'{"messages": null, "prompt": null}'],
    ids=["neither", "both", "nulls"],
)
def test_exactly_one_of_prompt_and_messages_is_required(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="exactly one of 'prompt' and 'messages'"):
        parsed_body(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b'{"prompt": "\xff"}',
        b'{"prompt": "\\ud800"}',
        b"\xef\xbb\xbf{}",
        b'{"prompt": "a"} {}',
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "temperature": Infinity}',
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}",
        b'{"prompt": "a", "metadata": {"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        b"[" * 1_000_000,
    ],
    ids=lambda body: repr(body[:45]),
)
def test_what_is_not_such_json_is_bad_input(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        parsed_body(body)


@pytest.mark.parametrize("session", ["", "x" * 257, "a\tb", "\x7f"], ids=repr)
def test_a_session_that_is_empty_long_or_unprintable_is_refused(session: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parsed_body(a_body(), session=session)

    assert caught.value.field == "x-session-affinity"


def test_a_session_of_256_characters_is_kept_as_it_is() -> None:
    session = "ses_é " + "x" * 250

    assert parsed_body(a_body(), session=session).session == session


def test_tools_are_refused_where_the_model_calls_none() -> None:
    with pytest.raises(InvalidInput, match="calls no functions"):
        parsed_body(a_body(tools=[TOOL]), entry=GLM)


def test_a_message_does_not_repeat_an_unknown_fields_endless_name() -> None:
    with pytest.raises(InvalidInput) as caught:
        parsed_body(a_body(**{"x" * 100_000: 1}))

    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "body",
    [
        a_body(**{" - at `$" * 1_000_000: 1}),
        a_body(tools=[{"name": f"f{index}"} for index in range(200_000)]),
        a_body(
            messages=[
                {"role": "assistant", "tool_calls": [a_call(f"c{i}") for i in range(80_000)]},
                USER,
            ]
        ),
    ],
    ids=["field name", "tools", "calls"],
)
def test_a_big_body_is_read_in_time_that_grows_with_its_size(body: bytes) -> None:
    started_s = time.process_time()

    with contextlib.suppress(InvalidInput):
        parsed_body(body)

    # a second would be enough; what grows with the square would take minutes
    assert time.process_time() - started_s < 15


def test_calls_of_earlier_turns_need_no_declared_tool() -> None:
    request = parsed(
        messages=[
            USER,
            {"role": "assistant", "tool_calls": [a_call()]},
            {"role": "tool", "tool_call_id": "call_0", "content": "1"},
        ]
    )

    assert request.tools == ()


def test_who_would_rather_be_refused_than_wait_says_so() -> None:
    assert parsed().may_wait
    assert not parsed(options={"rejectIfBusy": True}).may_wait
