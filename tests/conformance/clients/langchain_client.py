"""LangChain's chat model of Workers AI, over both of its endpoints."""

# mypy: ignore-errors

from __future__ import annotations

from langchain_cloudflare import ChatCloudflareWorkersAI
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel
from scenarios import (
    ACCOUNT_ID,
    API_TOKEN,
    BASE_URL,
    BOOKED,
    BOOKING,
    EXTRACTION,
    MODEL,
    SUM,
    main,
    scenario,
)


def a_model(**options):
    return ChatCloudflareWorkersAI(
        model=MODEL,
        account_id=ACCOUNT_ID,
        api_token=API_TOKEN,
        base_url=BASE_URL,
        temperature=0,
        **options,
    )


native = a_model()
compatible = a_model(endpoint_format="openai_compatible")


# named as the model would name it, for it becomes a tool of this name
class book_table(BaseModel):
    """Book a table."""

    city: str
    guests: int


@tool("book_table")
def book(city: str, guests: int) -> str:
    """Book a table."""
    return BOOKED


@tool
def find_hotel(city: str) -> str:
    """Find a hotel."""
    return "none"


def _invoked(model):
    answer = model.invoke([SystemMessage("You are brief."), HumanMessage(SUM)])
    return {"text": answer.text, "usage": answer.usage_metadata}


@scenario
def invoked():
    return _invoked(native)


@scenario
def invoked_compatibly():
    return _invoked(compatible)


@scenario
def streamed():
    return "".join(chunk.text for chunk in native.stream(SUM))


@scenario
def streamed_compatibly():
    return "".join(chunk.text for chunk in compatible.stream(SUM))


@scenario
async def invoked_asynchronously():
    return (await a_model().ainvoke(SUM)).text


@scenario
async def streamed_asynchronously():
    return "".join([chunk.text async for chunk in a_model().astream(SUM)])


def _tool_round(model):
    bound = model.bind_tools([book, find_hotel])
    first = bound.invoke(BOOKING)
    call = first.tool_calls[0]
    told = bound.invoke(
        [HumanMessage(BOOKING), first, ToolMessage(BOOKED, tool_call_id=call["id"])]
    )
    return {"calls": [[each["name"], each["args"]] for each in first.tool_calls], "told": told.text}


@scenario
def tool_round():
    return _tool_round(native)


@scenario
def tool_round_compatibly():
    return _tool_round(compatible)


@scenario
def required_tool():
    bound = native.bind_tools([book, find_hotel], tool_choice="required")
    return [call["name"] for call in bound.invoke(SUM).tool_calls]


@scenario
def structured_by_tool():
    return native.with_structured_output(book_table).invoke(BOOKING).model_dump()


@scenario
def structured_by_schema():
    # unless told otherwise the client allows 4,096 tokens here, which is all of a nano model's context
    limited = a_model(max_tokens=200)
    structured = limited.with_structured_output(book_table, method="json_schema")
    return structured.invoke(EXTRACTION).model_dump()


@scenario
def structured_by_mode():
    structured = native.with_structured_output(book_table, method="json_mode")
    return structured.invoke(EXTRACTION).model_dump()


@scenario
def session():
    model = a_model(session_id="session-of-langchain", max_tokens=1)
    long = f"Remember these: {' '.join(map(str, range(400)))}. {SUM}"
    for _ in range(2):
        answer = model.invoke(long)
    usage = answer.response_metadata["token_usage"]
    return [usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]]


@scenario
def reject_if_busy():
    return a_model(reject_if_busy=True).invoke(SUM).text


if __name__ == "__main__":
    main()
