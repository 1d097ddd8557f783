"""OpenAI's Python client."""

# mypy: ignore-errors

from __future__ import annotations

import asyncio

import openai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel
from scenarios import (
    ACCOUNT_ID,
    API_TOKEN,
    BASE_URL,
    BOOKED,
    BOOKING,
    EXTRACTION,
    MODEL,
    STRICT_SCHEMA,
    SUM,
    TOOLS,
    main,
    raised,
    scenario,
    user,
)

URL = f"{BASE_URL}/accounts/{ACCOUNT_ID}/ai/v1"
ROOT_URL = f"{BASE_URL.removesuffix('/client/v4')}/v1"

client = OpenAI(base_url=URL, api_key=API_TOKEN, max_retries=0)
chat = client.chat.completions


class Booking(BaseModel):
    city: str
    guests: int


def ask(text, **options):
    return chat.create(**{"model": MODEL, "messages": [user(text)], "temperature": 0, **options})


def calls_of(message):
    return [[call.function.name, call.function.arguments] for call in message.tool_calls or ()]


@scenario
def whole_answer():
    answer = ask(SUM)
    choice = answer.choices[0]
    return {
        "object": answer.object,
        "content": choice.message.content,
        "reasoning": getattr(choice.message, "reasoning", None),
        "finish_reason": choice.finish_reason,
        "prompt_tokens": answer.usage.prompt_tokens,
        "completion_tokens": answer.usage.completion_tokens,
        "total_tokens": answer.usage.total_tokens,
        "cached_tokens": answer.usage.prompt_tokens_details.cached_tokens,
        "reasoning_tokens": answer.usage.completion_tokens_details.reasoning_tokens,
    }


@scenario
def streamed_answer():
    chunks = list(ask(SUM, stream=True, stream_options={"include_usage": True}))
    choices = [choice for chunk in chunks for choice in chunk.choices]
    return {
        "content": "".join(choice.delta.content or "" for choice in choices),
        "finish_reasons": [each.finish_reason for each in choices if each.finish_reason],
        "usages": [chunk.usage.completion_tokens for chunk in chunks if chunk.usage],
        "choices_of_last": len(chunks[-1].choices),
        "ids": len({chunk.id for chunk in chunks}),
    }


@scenario
async def concurrent_answers():
    async with AsyncOpenAI(base_url=URL, api_key=API_TOKEN) as many:
        asked = [
            many.chat.completions.create(model=MODEL, messages=[user(SUM)], temperature=0)
            for _ in range(4)
        ]
        return [answer.choices[0].message.content for answer in await asyncio.gather(*asked)]


@scenario
def root_url():
    with OpenAI(base_url=ROOT_URL, api_key=API_TOKEN) as rooted:
        answer = rooted.chat.completions.create(model=MODEL, messages=[user(SUM)], temperature=0)
        return {
            "content": answer.choices[0].message.content,
            "models": sorted(model.id for model in rooted.models.list()),
        }


@scenario
def models():
    return sorted(model.id for model in client.models.list())


@scenario
def short_name():
    return ask(SUM, model=MODEL.rpartition("/")[2]).choices[0].message.content


@scenario
def without_thinking():
    message = ask("What is 31 + 46?", reasoning_effort="none").choices[0].message
    return [message.content, getattr(message, "reasoning", None)]


@scenario
def image():
    pixel = {"url": "data:image/png;base64,iVBORw0KGgo="}
    parts = [{"type": "text", "text": SUM}, {"type": "image_url", "image_url": pixel}]
    error = raised(openai.BadRequestError, lambda: ask(parts))
    return error.message


@scenario
def left_stream():
    with ask(SUM, stream=True) as stream:
        next(iter(stream))
    return ask(SUM).choices[0].message.content


@scenario
async def asynchronous_stream():
    async with AsyncOpenAI(base_url=URL, api_key=API_TOKEN) as asynchronous:
        stream = await asynchronous.chat.completions.create(
            model=MODEL, messages=[user(SUM)], temperature=0, stream=True
        )
        choices = [choice async for chunk in stream for choice in chunk.choices]
    return "".join(choice.delta.content or "" for choice in choices)


@scenario
def kinds_of_content():
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "You are brief."}]},
        {"role": "user", "content": [{"type": "text", "text": SUM}]},
        {"role": "assistant", "content": None, "refusal": None},
        user(SUM),
    ]
    return chat.create(model=MODEL, messages=messages, temperature=0).choices[0].finish_reason


@scenario
def tool_round():
    messages = [user(BOOKING)]
    first = chat.create(model=MODEL, messages=messages, tools=TOOLS, temperature=0).choices[0]
    called = first.message.tool_calls[0]
    messages += [first.message, {"role": "tool", "tool_call_id": called.id, "content": BOOKED}]
    second = chat.create(model=MODEL, messages=messages, tools=TOOLS, temperature=0).choices[0]
    return {
        "calls": calls_of(first.message),
        "finish_reason": first.finish_reason,
        "told": second.message.content,
    }


@scenario
def streamed_tool_call():
    messages = [user(BOOKING)]
    with chat.stream(model=MODEL, messages=messages, tools=TOOLS, temperature=0) as stream:
        done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0]
    return {
        "calls": calls_of(final.message),
        "finish_reason": final.finish_reason,
        "done": [[event.name, event.arguments] for event in done],
    }


@scenario
def tool_choices():
    named = {"type": "function", "function": {"name": "find_hotel"}}
    return {
        "none": calls_of(ask(BOOKING, tools=TOOLS, tool_choice="none").choices[0].message),
        "required": calls_of(ask(SUM, tools=TOOLS, tool_choice="required").choices[0].message),
        "named": calls_of(ask(BOOKING, tools=TOOLS, tool_choice=named).choices[0].message),
    }


@scenario
def several_tool_calls():
    text = "Find a hotel in Paris. Please book a table in Rome for 4 guests."
    both = ask(text, tools=TOOLS).choices[0].message
    one = ask(text, tools=TOOLS, parallel_tool_calls=False).choices[0].message
    return {
        "names": [name for name, _ in calls_of(both)],
        "ids": [call.id for call in both.tool_calls],
        "not_parallel": [name for name, _ in calls_of(one)],
    }


@scenario
def parsed_answer():
    messages = [user(EXTRACTION)]
    answer = chat.parse(model=MODEL, messages=messages, response_format=Booking, temperature=0)
    return answer.choices[0].message.parsed.model_dump()


@scenario
def streamed_parsed_answer():
    messages = [user(EXTRACTION)]
    with chat.stream(
        model=MODEL, messages=messages, response_format=Booking, temperature=0
    ) as stream:
        return stream.get_final_completion().choices[0].message.parsed.model_dump()


@scenario
def parsed_tool_call():
    tools = [openai.pydantic_function_tool(Booking, name="book_table")]
    answer = chat.parse(model=MODEL, messages=[user(BOOKING)], tools=tools, temperature=0)
    return answer.choices[0].message.tool_calls[0].function.parsed_arguments.model_dump()


@scenario
def json_object():
    answer = ask(EXTRACTION, response_format={"type": "json_object"})
    return answer.choices[0].message.content


@scenario
def logprobs():
    answer = ask(SUM, logprobs=True, top_logprobs=2)
    entries = answer.choices[0].logprobs.content
    return {
        "tokens": [entry.token for entry in entries],
        "logprobs": [entry.logprob for entry in entries],
        "tops": [[each.token for each in entry.top_logprobs] for entry in entries],
    }


@scenario
def several_choices():
    answer = ask(SUM, n=3, temperature=1, seed=7)
    return {
        "indexes": [choice.index for choice in answer.choices],
        "contents": [choice.message.content for choice in answer.choices],
        "again": [
            choice.message.content for choice in ask(SUM, n=3, temperature=1, seed=7).choices
        ],
        "completion_tokens": answer.usage.completion_tokens,
    }


@scenario
def seeds():
    def reasoned(seed):
        message = ask(SUM, temperature=2, seed=seed, max_tokens=40).choices[0].message
        return [message.content, getattr(message, "reasoning", None)]

    return [reasoned(7), reasoned(7), reasoned(8)]


@scenario
def stops():
    return {
        "string": ask(SUM, stop=" = ").choices[0].message.content,
        "limit": ask(SUM, max_completion_tokens=3).choices[0].finish_reason,
    }


@scenario
def penalties_and_bias():
    answer = ask(SUM, frequency_penalty=0.1, presence_penalty=0.1, logit_bias={"5": -1}, top_p=0.9)
    return answer.choices[0].finish_reason


@scenario
def harmless_fields():
    answer = ask(
        SUM,
        user="u1",
        store=False,
        metadata={"a": "b"},
        service_tier="auto",
        safety_identifier="s1",
        prompt_cache_key="session-of-openai",
    )
    return answer.choices[0].message.content


@scenario
def session():
    long = [user(f"Remember these: {' '.join(map(str, range(400)))}. {SUM}")]
    for _ in range(2):
        answer = chat.create(
            model=MODEL,
            messages=long,
            max_tokens=1,
            extra_headers={"x-session-affinity": "session-of-openai"},
        )
    return [answer.usage.prompt_tokens_details.cached_tokens, answer.usage.prompt_tokens]


@scenario
def unknown_model():
    error = raised(
        openai.APIStatusError, lambda: chat.create(model="kimi-k2.7", messages=[user(SUM)])
    )
    return {"status": error.status_code, "message": error.message, "type": type(error).__name__}


@scenario
def unknown_key():
    with OpenAI(base_url=URL, api_key="tny_unknown", max_retries=0) as stranger:
        error = raised(
            openai.AuthenticationError,
            lambda: stranger.chat.completions.create(model=MODEL, messages=[user(SUM)]),
        )
    return {"status": error.status_code, "body": error.body}


@scenario
def refused_parameter():
    error = raised(openai.BadRequestError, lambda: ask(SUM, temperature=9))
    return {
        "param": error.param,
        "body": error.body,
        "whole_body": sorted(error.response.json()),
    }


@scenario
def response():
    answer = client.responses.create(
        model=MODEL, input=SUM, instructions="You are brief.", temperature=0
    )
    return {
        "text": answer.output_text,
        "status": answer.status,
        "types": [item.type for item in answer.output],
        "output_tokens": answer.usage.output_tokens,
    }


@scenario
def streamed_response():
    events = list(client.responses.create(model=MODEL, input=SUM, temperature=0, stream=True))
    kinds = [event.type for event in events]
    return {
        "text": "".join(e.delta for e in events if e.type == "response.output_text.delta"),
        "first": kinds[0],
        "last": kinds[-1],
        "numbers": [event.sequence_number for event in events],
        "final": events[-1].response.output_text,
    }


@scenario
def response_tool_round():
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    asked = [user(BOOKING)]
    first = client.responses.create(model=MODEL, input=asked, tools=tools, temperature=0)
    called = next(item for item in first.output if item.type == "function_call")
    asked += [*first.output]
    asked += [{"type": "function_call_output", "call_id": called.call_id, "output": BOOKED}]
    second = client.responses.create(model=MODEL, input=asked, tools=tools, temperature=0)
    return {"calls": [[called.name, called.arguments]], "told": second.output_text}


@scenario
def parsed_response():
    answer = client.responses.parse(
        model=MODEL, input=EXTRACTION, text_format=Booking, temperature=0
    )
    return answer.output_parsed.model_dump()


@scenario
def completion():
    answer = client.completions.create(model=MODEL, prompt=SUM, max_tokens=20, temperature=0)
    return {
        "object": answer.object,
        "text": answer.choices[0].text,
        "finish_reason": answer.choices[0].finish_reason,
        "completion_tokens": answer.usage.completion_tokens,
    }


@scenario
def echoed_completion():
    answer = client.completions.create(
        model=MODEL, prompt=SUM, max_tokens=1, temperature=0, echo=True
    )
    return answer.choices[0].text


@scenario
def streamed_completion():
    stream = client.completions.create(
        model=MODEL, prompt=SUM, max_tokens=20, temperature=0, stream=True
    )
    return "".join(chunk.choices[0].text for chunk in stream if chunk.choices)


@scenario
def schema_by_hand():
    envelope = {"name": "booking", "schema": STRICT_SCHEMA, "strict": True}
    form = {"type": "json_schema", "json_schema": envelope}
    return ask(EXTRACTION, response_format=form).choices[0].message.content


if __name__ == "__main__":
    main()
