"""What a client is put through: each scenario's answer, or its traceback, printed as one JSON object."""

# mypy: ignore-errors

from __future__ import annotations

import asyncio
import inspect
import json
import os
import traceback

BASE_URL = os.environ["TENANTRY_BASE_URL"]
ACCOUNT_ID = os.environ["TENANTRY_ACCOUNT_ID"]
API_TOKEN = os.environ["TENANTRY_API_TOKEN"]
MODEL = os.environ["MODEL"]

SUM = "What is 17 + 25?"
BOOKING = "Please book a table in Rome for 4 guests."
BOOKED = json.dumps({"id": "b7k2"})
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "guests": {"type": "integer"}},
    "required": ["city", "guests"],
}
STRICT_SCHEMA = {**SCHEMA, "additionalProperties": False}
EXTRACTION = (
    f"Extract the values as JSON.\n{json.dumps(SCHEMA)}\n\nThe city is Rome. The guests is 4."
)
BOOK_TABLE = {
    "type": "function",
    "function": {"name": "book_table", "description": "Book a table.", "parameters": SCHEMA},
}
FIND_HOTEL = {
    "type": "function",
    "function": {
        "name": "find_hotel",
        "description": "Find a hotel.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
TOOLS = [BOOK_TABLE, FIND_HOTEL]

_SCENARIOS = []


def scenario(function):
    """Run a function among the others; what it returns is what its test judges."""
    _SCENARIOS.append(function)
    return function


def user(text):
    return {"role": "user", "content": text}


def raised(error_type, call):
    """Return what the client makes of an error."""
    try:
        call()
    except error_type as error:
        return error
    raise AssertionError("nothing was raised")


def main():
    answers = {}
    for function in _SCENARIOS:
        try:
            answer = function()
            if inspect.iscoroutine(answer):
                answer = asyncio.run(answer)
            answers[function.__name__] = {"answer": answer}
        # whatever a client fails with is for the test to report
        except Exception:
            answers[function.__name__] = {"failure": traceback.format_exc()}
    print(json.dumps(answers))
