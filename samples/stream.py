"""Print an answer as it is made. Start `workerctl dev` in another terminal first."""

import asyncio

from tenantry import AsyncAI


async def main() -> None:
    messages = [
        {"role": "system", "content": "You are brief."},
        {"role": "user", "content": "What is 17 + 25?"},
    ]
    async with AsyncAI() as ai:
        # leaving the block early, with `break` or an exception, ends the generation too
        async with await ai.run("kimi-k2.6", {"messages": messages}, stream=True) as stream:
            async for chunk in stream:
                print(chunk.text, end="", flush=True)
        print()
        if stream.usage:
            print(f"{stream.usage.total_tokens} tokens, finish reason {stream.finish_reason!r}")


asyncio.run(main())
