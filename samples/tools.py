"""Let a model call Python functions. Start `workerctl dev` in another terminal first."""

from typing import Any

from tenantry import AI, run_tools, tool


@tool
def book_table(city: str, guests: int) -> dict[str, str]:
    """Book a table.

    Args:
        city: Name of the city
        guests: Number of people
    """
    return {"id": f"{city[0].lower()}{guests}k2"}


messages: list[Any] = [{"role": "user", "content": "Please book a table in Rome for 4 guests."}]
with AI() as ai:
    while True:
        answer = ai.run(
            "kimi-k2.6", {"messages": messages, "tools": [book_table], "temperature": 0}
        )
        messages.append(answer.message)
        if not answer.tool_calls:
            break
        # what goes wrong in a call is told to the model, and is in `error`
        for result in run_tools([book_table], answer.tool_calls):
            print(f"{result.call.function.arguments} -> {result.content}")
            messages.append(result)
print(answer.text)
