"""Cloudflare's Python client."""

# mypy: ignore-errors

from __future__ import annotations

import json

import cloudflare
from cloudflare import Cloudflare
from scenarios import (
    ACCOUNT_ID,
    API_TOKEN,
    BASE_URL,
    BOOKED,
    BOOKING,
    EXTRACTION,
    MODEL,
    SCHEMA,
    SUM,
    TOOLS,
    main,
    raised,
    scenario,
    user,
)

client = Cloudflare(base_url=BASE_URL, api_token=API_TOKEN, max_retries=0)


def run(**inputs):
    return client.ai.run(MODEL, account_id=ACCOUNT_ID, **{"temperature": 0, **inputs})


def message_of(result):
    return result["choices"][0]["message"]


def calls_of(result):
    calls = message_of(result).get("tool_calls") or ()
    return [[call["function"]["name"], call["function"]["arguments"]] for call in calls]


@scenario
def prompt():
    result = run(prompt=SUM)
    return {
        "content": message_of(result)["content"],
        "finish_reason": result["choices"][0]["finish_reason"],
        "usage": result["usage"],
    }


@scenario
def messages():
    return message_of(run(messages=[user(SUM)]))["content"]


@scenario
def streamed():
    with client.ai.with_streaming_response.run(
        MODEL, account_id=ACCOUNT_ID, prompt=SUM, temperature=0, stream=True
    ) as response:
        lines = [line for line in response.iter_lines() if line.startswith("data: ")]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return {
        "last": lines[-1],
        "content": "".join(delta.get("content") or "" for delta in deltas),
    }


@scenario
def tool_round():
    asked = [user(BOOKING)]
    first = run(messages=asked, tools=TOOLS)
    call = message_of(first)["tool_calls"][0]
    asked += [message_of(first), {"role": "tool", "tool_call_id": call["id"], "content": BOOKED}]
    second = run(messages=asked, tools=TOOLS)
    return {"calls": calls_of(first), "told": message_of(second)["content"]}


@scenario
def bare_schema():
    form = {"type": "json_schema", "json_schema": SCHEMA}
    return message_of(run(messages=[user(EXTRACTION)], response_format=form))["content"]


@scenario
def extra_parameters():
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    result = run(messages=[user("What is 31 + 46?")], extra_body=extra)
    return [message_of(result)["content"], message_of(result).get("reasoning")]


@scenario
def session():
    long = f"Remember these: {' '.join(map(str, range(400)))}. {SUM}"
    for _ in range(2):
        headers = {"x-session-affinity": "session-of-cloudflare"}
        usage = run(prompt=long, max_tokens=1, extra_headers=headers)["usage"]
    return [usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]]


@scenario
def models():
    return sorted(model["name"] for model in client.ai.models.list(account_id=ACCOUNT_ID))


@scenario
def model_schema():
    return sorted(dict(client.ai.models.schema.get(account_id=ACCOUNT_ID, model=MODEL)))


@scenario
def tasks():
    return [task["name"] for task in client.ai.tasks.list(account_id=ACCOUNT_ID)]


@scenario
def authors():
    return len(list(client.ai.authors.list(account_id=ACCOUNT_ID)))


@scenario
def unknown_model():
    error = raised(
        cloudflare.BadRequestError,
        lambda: client.ai.run("@cf/moonshotai/kimi-k9", account_id=ACCOUNT_ID, prompt=SUM),
    )
    return {"status": error.status_code, "codes": [entry.code for entry in error.errors]}


@scenario
def unknown_token():
    stranger = Cloudflare(base_url=BASE_URL, api_token="tny_unknown", max_retries=0)
    error = raised(
        cloudflare.APIStatusError,
        lambda: stranger.ai.run(MODEL, account_id=ACCOUNT_ID, prompt=SUM),
    )
    return {"status": error.status_code, "codes": [entry.code for entry in error.errors]}


def queued(**body):
    """Call as a batch; the client knows neither its fields nor its query."""
    return client.ai.run(
        MODEL,
        account_id=ACCOUNT_ID,
        prompt=cloudflare.omit,
        extra_body=body,
        extra_query={"queueRequest": "true"},
    )


@scenario
def batch():
    ticket = queued(requests=[{"prompt": SUM, "external_reference": "sum"}])
    return {"ticket": ticket, "polled": queued(request_id=ticket["request_id"])}


if __name__ == "__main__":
    main()
