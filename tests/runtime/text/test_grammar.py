"""Grammars of answers: what of both families' formats they let through, and what they do not."""

from __future__ import annotations

import pytest

from support.constrained import (
    CLOCK,
    WEATHER,
    begins,
    fits,
    glm_call,
    grammar_of,
    kimi_call,
    kimi_section,
    weather_call,
)
from tenantry_runtime.core import JsonFormat, Tool, ToolChoice
from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.text import OutputState, Wanted

BOTH = pytest.mark.parametrize("family", ["kimi", "glm"])
TOOLS = (WEATHER, CLOCK)
REQUIRED = ToolChoice(mode="required")


def after_thinking(**options: object) -> Wanted:
    return Wanted(initial=OutputState.REASONING, **options)  # type: ignore[arg-type]


def at_once(**options: object) -> Wanted:
    return Wanted(initial=OutputState.CONTENT, **options)  # type: ignore[arg-type]


@BOTH
def test_a_free_answer_stays_free_where_tools_are_on_offer(family: str) -> None:
    for wanted in (at_once(tools=TOOLS), after_thinking(tools=TOOLS)):
        assert fits(family, wanted, "")
        assert fits(family, wanted, "Nothing to call. {]\n</think> é 漢")


@BOTH
def test_a_call_that_the_model_chooses_fits_its_schema(family: str) -> None:
    wanted = at_once(tools=TOOLS)
    assert fits(family, wanted, "Well. " + weather_call(family, city="Bern", days=3))
    assert fits(family, wanted, weather_call(family, city="Bern", unit=None))
    assert not begins(family, wanted, weather_call(family, city="Bern", days=0))
    assert not begins(family, wanted, weather_call(family, city="Bern", unit="K"))
    assert not begins(family, wanted, weather_call(family, city="A city of many letters"))
    assert not begins(family, wanted, weather_call(family, days=3))
    assert not begins(family, wanted, weather_call(family, city="Bern", country="CH"))


@BOTH
def test_a_call_in_the_middle_of_thinking_fits_its_schema(family: str) -> None:
    wanted = after_thinking(tools=TOOLS)
    assert fits(family, wanted, "I had better ask." + weather_call(family, city="Bern"))
    assert not begins(family, wanted, "I had better ask." + weather_call(family, days=3))


def test_only_declared_functions_can_be_called() -> None:
    wanted = at_once(tools=TOOLS)
    assert begins("kimi", wanted, "<|tool_calls_section_begin|><|tool_call_begin|>functions.clock:")
    assert not begins(
        "kimi", wanted, "<|tool_calls_section_begin|><|tool_call_begin|>functions.cl:"
    )
    assert not begins("kimi", wanted, kimi_call("clock", "{}"))
    assert fits("glm", wanted, glm_call("clock"))
    assert not begins("glm", wanted, "<tool_call>clocks")


def test_a_turn_does_not_end_within_a_call() -> None:
    whole = kimi_section(kimi_call("clock", "{}"))
    for scripted in (
        "<|tool_calls_section_begin|>",
        whole.removesuffix("<|tool_calls_section_end|>"),
    ):
        assert begins("kimi", at_once(tools=TOOLS), scripted)
        assert not fits("kimi", at_once(tools=TOOLS), scripted)
    assert not fits("glm", at_once(tools=TOOLS), "<tool_call>clock")


def test_several_calls_follow_each_other_unless_one_is_asked_for() -> None:
    calls = [kimi_call("clock", "{}", 3), kimi_call("weather", '{"city": "Bern"}', 4)]
    glm = glm_call("clock") + glm_call("weather", city="Bern")
    for choice in (ToolChoice(), REQUIRED):
        many = at_once(tools=TOOLS, choice=choice)
        one = at_once(tools=TOOLS, choice=choice, has_many=False)
        assert fits("kimi", many, kimi_section(*calls))
        assert not begins("kimi", one, kimi_section(*calls))
        assert fits("kimi", one, kimi_section(calls[0]))
        assert not begins("kimi", one, kimi_section(calls[0]) + kimi_section(calls[1]))
        assert fits("glm", many, glm)
        assert not begins("glm", one, glm)


@BOTH
def test_a_required_call_comes_and_nothing_else(family: str) -> None:
    call = weather_call(family, city="Bern")
    wanted = at_once(tools=TOOLS, choice=REQUIRED)
    assert fits(family, wanted, call)
    assert fits(family, wanted, "\n" + call)
    assert not fits(family, wanted, "")
    assert not begins(family, wanted, "Well. ")
    thinking = after_thinking(tools=TOOLS, choice=REQUIRED)
    assert fits(family, thinking, "Let me see.</think>" + call)
    assert not fits(family, thinking, "Let me see.</think>")
    assert not fits(family, thinking, "Let me see.")


@BOTH
def test_a_named_function_is_the_only_one(family: str) -> None:
    wanted = at_once(tools=TOOLS, choice=ToolChoice(mode="required", name="clock"))
    clock = glm_call("clock") if family == "glm" else kimi_section(kimi_call("clock", "{}"))
    assert fits(family, wanted, clock)
    assert not begins(family, wanted, weather_call(family, city="Bern"))


@BOTH
def test_json_comes_after_thinking_and_then_the_turn_ends(family: str) -> None:
    wanted = after_thinking(format=JsonFormat())
    assert fits(family, wanted, 'An object: {"a": </think>{"a": [1, null, "é"]}')
    assert not fits(family, wanted, "No object.")
    assert not fits(family, wanted, "No object.</think>")
    assert not begins(family, wanted, "</think>[1]")
    assert not begins(family, wanted, "</think>{} and more")


@BOTH
def test_json_and_tools_leave_the_choice_between_the_two(family: str) -> None:
    wanted = at_once(tools=TOOLS, format=JsonFormat(schema={"type": "array"}))
    assert fits(family, wanted, "[1, 2]")
    assert fits(family, wanted, weather_call(family, city="Bern"))
    assert not begins(family, wanted, "Well. ")


@BOTH
def test_white_space_numbers_and_depth_have_an_end(family: str) -> None:
    wanted = at_once(format=JsonFormat())
    assert fits(family, wanted, '{\n  "a": {\n    "b": 1\n  }\n}')
    assert not begins(family, wanted, '{"a":' + " " * 40)
    assert not begins(family, wanted, '{"a": 1' + "\n" * 3)
    assert not begins(family, wanted, '{"a": ' + "7" * 20)
    assert not begins(family, wanted, '{"a": 0.' + "3" * 12)
    assert not begins(family, wanted, '{"a": ' + "[" * 12)
    some = at_once(format=JsonFormat(schema={"type": "number"}))
    assert fits(family, some, "-12.5")
    assert not begins(family, some, "9" * 20)
    large = at_once(format=JsonFormat(schema={"type": "integer", "minimum": 10**17}))
    assert fits(family, large, str(10**17 + 1))


@BOTH
def test_objects_have_the_properties_that_their_schema_lists(family: str) -> None:
    listing = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert not begins(family, at_once(format=JsonFormat(schema=listing)), '{"b"')
    opened = {**listing, "additionalProperties": True}
    assert fits(family, at_once(format=JsonFormat(schema=opened)), '{"a": "x", "b": 1}')
    # two schemas for one value: neither may forbid what the other asks for
    both = {**listing, "anyOf": [{"properties": {"b": {"type": "integer"}}, "required": ["b"]}]}
    assert fits(family, at_once(format=JsonFormat(schema=both)), '{"a": "x", "b": 1}')


def test_raw_text_keeps_to_the_schemas_of_strings() -> None:
    def fitting(schema: dict[str, object], value: str) -> bool:
        tool = Tool(name="f", parameters={"type": "object", "properties": {"a": schema}})
        return fits("glm", at_once(tools=(tool,), choice=REQUIRED), glm_call("f", a=value))

    assert fitting({"type": "string"}, 'any "text"\nat all <user> </b>')
    assert fitting({"type": "string", "minLength": 2, "maxLength": 3}, "abc")
    assert not fitting({"type": "string", "minLength": 2, "maxLength": 3}, "abcd")
    assert fitting({"type": "string", "pattern": "^a/b+$"}, "a/bb")
    assert not fitting({"type": "string", "pattern": "^a/b+$"}, "xa/bb")
    assert fitting({"type": "string", "pattern": "b"}, "abc")
    assert fitting({"const": "x"}, "x")
    assert not fitting({"const": "x"}, "y")
    # the writer of calls reads text that is JSON as JSON, where the schema has it both ways
    assert fitting({"type": ["string", "integer"]}, "some")
    assert fitting({"type": ["string", "integer"]}, "5")
    assert not fitting({"type": ["string", "integer"]}, "5 apples")
    assert fitting({"type": ["string", "null"]}, "null")
    assert not fitting({"type": "boolean"}, '"true"')


def test_arguments_of_no_schema_are_any() -> None:
    tool = Tool(name="f")
    assert fits("glm", at_once(tools=(tool,), choice=REQUIRED), glm_call("f", a="1", b="x"))
    wanted = at_once(tools=(tool,), choice=REQUIRED)
    assert fits("kimi", wanted, kimi_section(kimi_call("f", '{"a": [{"b": 1}]}')))
    assert not begins("kimi", wanted, kimi_section(kimi_call("f", "[]")))


def test_alternatives_of_arguments_are_spelled_out() -> None:
    parameters = {
        "$ref": "#/$defs/Either",
        "$defs": {
            "Either": {
                "anyOf": [
                    {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                    {"properties": {"b": {"$ref": "#/$defs/Text"}}, "required": ["b"]},
                ]
            },
            "Text": {"type": "string"},
        },
    }
    wanted = at_once(tools=(Tool(name="f", parameters=parameters),), choice=REQUIRED)
    assert fits("glm", wanted, glm_call("f", a="1"))
    assert fits("glm", wanted, glm_call("f", b="x"))
    assert not fits("glm", wanted, glm_call("f"))
    assert not begins("glm", wanted, glm_call("f", a="x"))


@BOTH
def test_what_no_grammar_can_have_binds_content_in_strict_form_alone(family: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "if": {}, "then": {}}
    with pytest.raises(InvalidInput, match="if") as refused:
        grammar_of(family, at_once(format=JsonFormat(schema=schema)))
    assert refused.value.field == "response_format.json_schema"
    loose = at_once(format=JsonFormat(schema=schema, strict=False))
    assert fits(family, loose, '{"a": 1}')
    assert not begins(family, loose, '{"a": "x"')
    called = at_once(tools=(WEATHER, Tool(name="f", parameters=schema)), choice=REQUIRED)
    assert fits(family, called, weather_call(family, city="Bern"))


@BOTH
@pytest.mark.parametrize(
    "bad",
    [
        {"type": "strin"},
        {"type": "object", "properties": [1]},
        {"$ref": "#/$defs/nowhere"},
        {"$ref": "https://example.com/schema.json"},
        {"type": "string", "pattern": "["},
        {"type": "integer", "minimum": 5, "maximum": 3},
        {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(9000)}},
    ],
    ids=["type", "properties", "reference", "remote", "pattern", "empty", "huge"],
)
def test_a_schema_that_is_none_is_refused_by_its_field(family: str, bad: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as content:
        grammar_of(family, at_once(format=JsonFormat(schema=bad, strict=False)))
    assert content.value.field == "response_format.json_schema"
    parameters = {"type": "object", "properties": {"a": bad}, "required": ["a"]}
    with pytest.raises(InvalidInput) as tools:
        grammar_of(family, at_once(tools=(CLOCK, Tool(name="f", parameters=parameters))))
    assert tools.value.field == "tools[1].function.parameters"
    assert len(str(tools.value)) < 700


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(5000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(InvalidInput, match="nested too deeply"):
        grammar_of("kimi", at_once(format=JsonFormat(schema=schema)))


@BOTH
@pytest.mark.parametrize(
    "circle",
    [
        {"$ref": "#"},
        {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}},
        {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"$ref": "#/$defs/b~1c"}, "b/c": {"$ref": "#/$defs/a"}},
        },
    ],
)
def test_a_reference_that_leads_to_itself_is_refused(
    family: str, circle: dict[str, object]
) -> None:
    with pytest.raises(InvalidInput, match="refers to itself"):
        grammar_of(family, at_once(format=JsonFormat(schema=circle)))
    with pytest.raises(InvalidInput, match="refers to itself"):
        grammar_of(family, at_once(tools=(CLOCK, Tool(name="f", parameters=circle))))


@BOTH
def test_a_schema_may_contain_itself(family: str) -> None:
    child = {"anyOf": [{"$ref": "#"}, {"type": "null"}]}
    tree = {"type": "object", "properties": {"child": child}, "required": ["child"]}
    wanted = at_once(format=JsonFormat(schema=tree))
    assert begins(family, wanted, '{"child": {"child": null}}')
    assert not begins(family, wanted, '{"child": {"child": 1')


def test_a_schemas_own_options_do_not_count() -> None:
    schema = {"type": "object", "x-guidance": {"whitespace_pattern": "[ ]*", "lenient": True}}
    wanted = at_once(format=JsonFormat(schema=schema))
    assert not begins("kimi", wanted, '{"a":' + " " * 40)
    with pytest.raises(InvalidInput):
        grammar_of("kimi", at_once(format=JsonFormat(schema={**schema, "not": {}})))


@BOTH
@pytest.mark.parametrize("name", ["https://example.com/s#/$defs/a", "#user", "any words", ""])
def test_a_schema_may_have_any_name_that_nothing_refers_to(family: str, name: str) -> None:
    schema = {
        "$id": name,
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"type": "integer"}},
    }
    wanted = at_once(format=JsonFormat(schema=schema))
    assert fits(family, wanted, '{"a": 7}')
    assert not begins(family, wanted, '{"a": "')
