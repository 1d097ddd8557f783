from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest

from support.nano import LONG_TOKENS, a_draw, some_examples
from tenantry_recipes.nano.splits import Split
from tenantry_recipes.nano.tasks import TASKS
from tenantry_recipes.nano.tasks.sorting import sorting_steps
from tenantry_recipes.nano.tasks.sums import is_trained
from tenantry_recipes.nano.tasks.task import Example, rough_length

EQUATION = re.compile(r"(-?\d+) ([-+*]) (-?\d+)(?: ([-+]) (\d))? = (-?\d+)")


def value_of(left: int, sign: str, right: int) -> int:
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


def answers(example: Example) -> list[tuple[str, str]]:
    """Pair each target's question with its content."""
    return [
        (example.messages[at - 1].content, example.messages[at].content)
        for at in sorted(example.targets)
    ]


@pytest.mark.parametrize("name", TASKS)
def test_an_example_is_a_function_of_its_seed(name: str) -> None:
    first, again = some_examples(name, 4), some_examples(name, 4)

    assert first == again
    assert len({example.messages for example in first}) == 4


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("thinking", [True, False])
def test_targets_are_assistant_messages_and_think_as_the_options_say(
    name: str, thinking: bool
) -> None:
    for example in some_examples(name, 25, thinking=thinking):
        assert example.targets
        assert (example.options.thinking is not False) is thinking
        for at in example.targets:
            message = example.messages[at]
            assert message.role == "assistant"
            assert bool(message.reasoning) is thinking
            assert bool(message.content) is not bool(message.tool_calls)


@pytest.mark.parametrize("name", TASKS)
def test_only_the_last_turn_is_learned_where_templates_drop_earlier_reasoning(name: str) -> None:
    for example in some_examples(name, 25, thinking=True):
        if example.options.preserve_thinking:
            continue
        last_user = max(at for at, each in enumerate(example.messages) if each.role == "user")
        assert min(example.targets) > last_user
        assert max(example.targets) == len(example.messages) - 1


@pytest.mark.parametrize("name", [name for name in TASKS if not name.endswith(("hard", "chain5"))])
@pytest.mark.parametrize("budget", [512, 2048])
def test_examples_keep_within_their_budget(name: str, budget: int) -> None:
    for number in range(30):
        example = TASKS[name].generate(a_draw(number, max_tokens=budget))
        text = " ".join(
            f"{each.reasoning or ''} {each.content} {each.tool_calls}" for each in example.messages
        )
        assert rough_length(text) <= budget * 1.2


@pytest.mark.parametrize("name", TASKS)
def test_every_equation_is_true(name: str) -> None:
    for example in some_examples(name, 40):
        for message in example.messages:
            for text in (message.content, message.reasoning or ""):
                for left, sign, right, then, carry, result in EQUATION.findall(text):
                    total = value_of(int(left), sign, int(right))
                    if then:
                        total = value_of(total, then, int(carry))
                    assert total == int(result), text


@pytest.mark.parametrize("name", TASKS)
def test_no_task_shows_in_training_what_judges_addition(name: str) -> None:
    shown = [
        (int(left), int(right))
        for example in some_examples(name, 60)
        for each in example.messages
        # sums of two terms only: what comes before or after belongs to a longer one
        for left, right in re.findall(r"(?<![-+] )\b(\d+) \+ (\d+)\b(?! [-+])", each.content)
    ]

    assert all(is_trained(left, "+", right) for left, right in shown)


def test_addition3_adds_two_numbers_of_three_digits() -> None:
    for example in some_examples("addition3", 30):
        for question, answer in answers(example):
            sums = EQUATION.findall(answer)
            assert sums
            for left, sign, right, *_ in sums:
                assert sign == "+" and len(left) == len(right) == 3
                assert left in question and right in question


def test_sorted_lists_are_sorted() -> None:
    checked = 0
    for example in some_examples("lists", 200):
        for question, answer in answers(example):
            if ("Sort" not in question and "order" not in question) or "around" in question:
                continue
            entries = answer.split(", ")
            assert sorted(entries) == sorted(re.split(r", ", listed(question)))
            values = [int(entry) if entry.isdigit() else entry for entry in entries]
            falls = any(
                word in question for word in ("descending", "large to small", "largest first")
            )
            pairs = pairwise(values)
            assert all((a >= b) if falls else (a <= b) for a, b in pairs)  # type: ignore[operator]
            checked += 1
    assert checked > 50


def listed(question: str) -> str:
    found = re.search(r"\w+(?:, \w+)+", re.sub(r", largest first", "", question))
    assert found
    return re.sub(r"^(Sort|Put|alphabetically) ", "", found.group())


def test_reversed_words_read_the_same_from_behind() -> None:
    checked = 0
    for example in some_examples("strings", 120):
        for question, answer in answers(example):
            if re.search("everse|backwards", question):
                words = re.findall(r"[a-z]+", question)
                assert all(word[::-1] in words for word in answer.split(", "))
                checked += 1
    assert checked > 50


@pytest.mark.parametrize("name", ["retrieval", "retrieval_hard"])
def test_asked_codes_stand_once_in_the_text_after_their_key(name: str) -> None:
    for example in some_examples(name, 12):
        text = example.messages[0].content
        for question, answer in answers(example):
            for code in re.findall(r"\b(?=\w*\d)(?=\w*[a-z])[a-z0-9]{6}\b", answer):
                assert text.count(code) == 1
                line = next(line for line in text.split("\n") if code in line)
                key = re.sub(
                    r"(: | = | -> | is | has ).*", "", re.sub(r"^- |^The code of ", "", line)
                )
                assert key in question


def test_the_hard_form_of_retrieval_has_64_keys_in_3500_tokens() -> None:
    for number in range(10):
        example = TASKS["retrieval_hard"].generate(a_draw(number, max_tokens=LONG_TOKENS))
        text = "\n".join(message.content for message in example.messages)
        codes = set(
            re.findall(r"\b(?=\w*\d)(?=\w*[a-z])[a-z0-9]{6}\b", example.messages[0].content)
        )

        assert len(codes) >= 64
        assert 3500 <= rough_length(text) <= LONG_TOKENS


def test_depths_of_asked_codes_are_uniform() -> None:
    depths = []
    for example in some_examples("retrieval_hard", 60):
        text = example.messages[0].content
        (answer,) = (content for _, content in answers(example))
        depths.append(text.index(answer.split(": ")[-1]) / len(text))

    # a third of a uniform sample of 60 has 20 with a deviation of 3.7
    for third in range(3):
        assert 9 <= sum(third / 3 <= depth < (third + 1) / 3 for depth in depths) <= 31


def test_calls_satisfy_the_declared_schema() -> None:
    for name in ("tools", "chain", "chain5"):
        for example in some_examples(name, 40):
            declared = {tool.name: tool.parameters for tool in example.tools}
            for message in example.messages:
                for call in message.tool_calls:
                    assert_satisfies(json.loads(call.arguments), declared[call.name])


def test_filled_objects_satisfy_the_asked_schema() -> None:
    for example in some_examples("filling", 60):
        for question, answer in answers(example):
            start = question.index('{"type"')
            schema, _ = json.JSONDecoder().raw_decode(question[start:])
            assert_satisfies(json.loads(answer), schema)


def assert_satisfies(value: dict[str, object], schema: dict[str, object]) -> None:
    kinds = {"string": str, "integer": int, "boolean": bool, "array": list}
    properties = schema["properties"]
    required = schema["required"]
    assert isinstance(properties, dict) and isinstance(required, list)
    assert set(required) <= value.keys() <= properties.keys()
    for name, member in value.items():
        assert type(member) is kinds[properties[name]["type"]]
        assert member in properties[name].get("enum", [member])


def test_ids_of_calls_count_through_the_conversation() -> None:
    for example in some_examples("tools", 40):
        calls = [call for message in example.messages for call in message.tool_calls]
        results = [message for message in example.messages if message.role == "tool"]

        assert [call.id for call in calls] == [
            f"functions.{call.name}:{index}" for index, call in enumerate(calls)
        ]
        assert [result.tool_call_id for result in results] == [call.id for call in calls]


def test_each_call_of_a_chain_takes_what_the_one_before_returned() -> None:
    for example in some_examples("chain5", 20):
        calls = [call for message in example.messages for call in message.tool_calls]
        results = [json.loads(each.content) for each in example.messages if each.role == "tool"]

        assert len(calls) == len(results) == 5
        assert example.whole
        for result, call in zip(results, calls[1:], strict=False):
            assert json.loads(call.arguments) == result
        assert next(iter(results[-1].values())) in example.messages[-1].content


def test_memory_answers_with_what_was_said_last() -> None:
    for example in some_examples("memory", 60):
        known: dict[str, str] = {}
        for message in example.messages:
            if message.role == "assistant":
                noted = re.fullmatch(r"(Noted\. )?(.+) is (\w+)\.", message.content)
                if noted and noted[1]:
                    known[noted[2]] = noted[3]
                elif noted:
                    assert known[noted[2]] == noted[3]


def test_reasoning_about_gym_items_ends_where_the_answer_begins() -> None:
    """The answers are the generators' own; the steps to them are ours."""
    kinds = (
        (r"Calculate|arithmetic problem|value of|Solve for", r"(-?\d+)\.$"),
        (r"How many times", r"(\d+)\.$"),
        (r"Reply only with a name", r"^([\w\u2019'-]+)"),
        (r"Spell this word", r"is (.+)\.$"),
    )
    checked = 0
    for example in some_examples("gym", 250, thinking=True):
        for at in example.targets:
            question, message = example.messages[at - 1].content, example.messages[at]
            for form, result in kinds:
                if re.search(form, question):
                    (found,) = re.findall(result, message.reasoning or "")
                    assert found.replace(" ", "") == message.content, question
                    checked += 1
    assert checked > 100


@pytest.mark.parametrize("falls", [False, True])
def test_sorting_steps_compare_two_entries_and_leave_one_less(falls: bool) -> None:
    entries = ["31", "4", "15", "92", "65"]

    steps = sorting_steps(entries, sorted(entries, key=int, reverse=falls))

    taken = [int(each) for each in re.findall(r"So (\d+)", steps)]
    (last,) = re.findall(r"Left (\d+)\.$", steps)
    assert [*taken, int(last)] == sorted(map(int, entries), reverse=falls)
    for left, right, better in re.findall(r"(?:^|[.] )(\d+), (\d+): (\d+)\.", steps):
        assert int(better) == (max if falls else min)(int(left), int(right))
    assert len(re.findall(r"\d+, \d+: \d+", steps)) == 4 + 3 + 2 + 1


def test_family_steps_lead_from_the_story_to_the_answer() -> None:
    relations = {
        r"\1 is married to \2.": {"wife", "husband"},
        r"\1 is a child of \2.": {"son", "daughter"},
        r"\2 is a child of \1.": {"mother", "father"},
    }
    checked = 0
    for example in some_examples("gym", 150, thinking=True):
        for at in example.targets:
            asked = re.search(
                r"(?:is|relation is) (\w+) (?:related )?to (\w+)\?", _said(example, at - 1)
            )
            if asked is None or "is married to" not in _said(example, at - 1):
                continue
            steps = example.messages[at].reasoning or ""
            in_law = {"mother-in-law", "father-in-law"} if steps.count(".") == 2 else set()
            possible = {
                answer
                for form, answers in relations.items()
                if steps == asked.expand(form)
                for answer in answers
            }
            assert _said(example, at) in possible | in_law, steps
            checked += 1
    assert checked > 10


def _said(example: Example, at: int) -> str:
    return example.messages[at].content


def test_texts_keep_to_a_small_vocabulary() -> None:
    words = {
        word.lower()
        for name in TASKS
        if name != "gym"
        for example in some_examples(name, 3 if name == "retrieval_hard" else 150)
        for message in example.messages
        for word in re.findall(r"\b[A-Za-z]+\b", f"{message.content} {message.reasoning or ''}")
        # letters at random: codes, words to reverse, ids
        if name not in ("strings", "mixed") and not re.search(r"\d", word)
    }

    assert len(words) < 1500


def test_a_test_example_differs_from_the_training_example_of_the_same_seed() -> None:
    for name in TASKS:
        most = LONG_TOKENS
        train, test = (
            TASKS[name].generate(a_draw(1, max_tokens=most, split=side)) for side in Split
        )
        assert set(train.keys).isdisjoint(test.keys)
