"""Ask a model that can book tables; a session is remembered, and its prompt cached.

    curl -H 'x-session-affinity: ada' -d 'A table for 4 in Rome, please.' \\
        http://tool-agent.dev.localhost:8787/
"""

import json

from workers import Response, WorkerEntrypoint

MAX_TURNS = 5
KEPT_S = 3600
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "book_table",
            "description": "Book a table in a restaurant.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "guests": {"type": "integer"}},
                "required": ["city", "guests"],
            },
        },
    }
]


def book_table(city, guests):
    return {"booking": f"{city[:2].upper()}-{guests}", "city": city, "guests": guests}


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        session = request.headers.get("x-session-affinity", "nobody")
        messages = await self.env.SESSIONS.get(session, "json") or []
        messages.append({"role": "user", "content": await request.text()})
        for _ in range(MAX_TURNS):
            answer = await self.env.AI.run(
                self.env.MODEL,
                {"messages": messages, "tools": TOOLS},
                {"extraHeaders": {"x-session-affinity": session}},
            )
            message = answer.choices[0].message
            messages.append(message)
            if not message.get("tool_calls"):
                kept = json.dumps(messages)
                self.ctx.waitUntil(self.env.SESSIONS.put(session, kept, expirationTtl=KEPT_S))
                return Response(message.content + "\n")
            for call in message.tool_calls:
                result = book_table(**json.loads(call.function.arguments))
                told = {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)}
                messages.append(told)
        return Response("The model called tools again and again.\n", status=502)
