from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tenantry import AI, MockTransport
from tenantry_recipes.nano.evaluate import JUDGED, held_out, judge
from tenantry_recipes.nano.examples import TextEncoder
from tenantry_recipes.nano.models import CHECKPOINTS, NANO_MODELS
from tenantry_recipes.nano.responder import Answer, Ask
from tenantry_recipes.nano.serving import EngineResponder, HttpResponder, answer_of
from tenantry_recipes.nano.tasks.task import Example
from tenantry_runtime.core import (
    ContentDelta,
    FinishReason,
    Message,
    ReasoningDelta,
    RenderOptions,
    Tool,
    ToolCall,
    ToolCallArguments,
    ToolCallStart,
)
from tenantry_runtime.pool.messages import (
    MemberDescription,
    NodeMessage,
    SequenceTokens,
    Step,
    Submit,
)
from tenantry_runtime.text import TextModel, load_text


class PerfectLoop:
    """An engine loop whose model has learned its examples by heart: it continues each prompt as the
    training ids do."""

    def __init__(self, text: TextModel, examples: Sequence[Example]) -> None:
        self._stop = text.stop_token_ids
        # in a prompt, past answers have the tokens of their text, whatever they were written in
        self._learned = [
            TextEncoder(text).encode(replace(example, spelled=example.spelled & {at}))
            for example in examples
            for at in example.targets
        ]
        self._waiting: list[Submit] = []

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    def describe(self) -> tuple[MemberDescription, ...]:
        member = MemberDescription(
            model="perfect",
            phase="decode",
            weights_format="none",
            cache_format="none",
            page_tokens=64,
            num_pages=64,
            context_tokens=4096,
            revision="0",
        )
        return (member,)

    def submit(self, submit: Submit) -> None:
        self._waiting.append(submit)

    def turn(self) -> list[NodeMessage]:
        submit = self._waiting.pop()
        answer = tuple(self._continued(submit.token_ids))
        assert len(answer) <= submit.max_tokens
        assert answer[-1] in submit.stop_token_ids
        tokens = SequenceTokens(submit.request_id, answer, FinishReason.STOP)
        return [Step(step=0, sequences=[tokens])]

    def close(self) -> None: ...

    def _continued(self, prompt: list[int]) -> Iterator[int]:
        for ids, mask in self._learned:
            if list(ids[: len(prompt)]) == prompt and mask[len(prompt)]:
                for token_id in ids[len(prompt) :]:
                    yield token_id
                    if token_id in self._stop:
                        return


@pytest.fixture(scope="module", params=sorted(NANO_MODELS))
def text(request: pytest.FixtureRequest) -> TextModel:
    return load_text(CHECKPOINTS / request.param)


@pytest.mark.parametrize("name", JUDGED)
@pytest.mark.parametrize("thinking", [True, False])
def test_a_model_that_learned_the_targets_by_heart_scores_in_full(
    text: TextModel, name: str, thinking: bool
) -> None:
    """Templates, training targets, the output machine and the scorers agree with each other."""
    examples = list(held_out(name, 2, thinking=thinking, length=text.length))
    loop = PerfectLoop(text, examples)
    with EngineResponder(text, loop) as responder:  # type: ignore[arg-type] # a stand-in
        verdicts = judge(responder, examples)

    assert verdicts and all(verdicts)


def test_the_hard_form_of_retrieval_has_3500_tokens_and_fits_the_context(text: TextModel) -> None:
    for thinking in (True, False):
        for example in held_out("retrieval_hard", 6, thinking=thinking, length=text.length):
            (target,) = example.targets
            prompt = text.render(example.messages[:target], example.tools, example.options)

            assert 3500 <= len(text.encode(prompt)) <= 4096 - 200


def test_events_fold_into_an_answer() -> None:
    answer = answer_of(
        [
            ReasoningDelta("I "),
            ReasoningDelta("think."),
            ContentDelta("Well"),
            ToolCallStart(0, "functions.a:0", "a"),
            ToolCallArguments(0, '{"x"'),
            ToolCallArguments(0, ": 1}"),
            ToolCallStart(1, "functions.b:1", "b"),
            ToolCallArguments(1, "{}"),
        ]
    )

    assert answer == Answer(
        content="Well",
        reasoning="I think.",
        tool_calls=(
            ToolCall(id="functions.a:0", name="a", arguments='{"x": 1}'),
            ToolCall(id="functions.b:1", name="b", arguments="{}"),
        ),
    )


def test_a_prompt_reaches_an_edge_and_its_answer_comes_back() -> None:
    call = {"id": "functions.find_room:0", "type": "function"}
    function = {"name": "find_room", "arguments": '{"city": "Rome"}'}
    received: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> dict[str, Any]:
        received.append(json.loads(request.content))
        message = {"role": "assistant", "content": None, "reasoning": "I call find_room."}
        calls = [{**call, "function": function}]
        return {"choices": [{"message": {**message, "tool_calls": calls}}]}

    ask = Ask(
        messages=(Message(role="user", content="Find a room in Rome."),),
        tools=(Tool(name="find_room", description="Find a room.", parameters={"type": "object"}),),
        options=RenderOptions(thinking=True),
    )
    with HttpResponder(AI(transport=MockTransport(answer)), "kimi-k2.6") as responder:
        answers = responder.respond([ask, ask])

    made = ToolCall(id="functions.find_room:0", name="find_room", arguments='{"city": "Rome"}')
    assert answers == [Answer(content="", reasoning="I call find_room.", tool_calls=(made,))] * 2
    assert received[0]["messages"] == [{"role": "user", "content": "Find a room in Rome."}]
    assert received[0]["tools"][0]["function"]["name"] == "find_room"
    assert received[0]["temperature"] == 0
    assert received[0]["chat_template_kwargs"] == {"thinking": True, "preserve_thinking": False}
