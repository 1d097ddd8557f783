"""Answer a question: `curl 'http://hello-ai.dev.localhost:8787/?q=Why+is+the+sky+blue'`."""

from urllib.parse import parse_qs, urlsplit

from workers import Response, WorkerEntrypoint


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        asked = parse_qs(urlsplit(request.url).query).get("q")
        if not asked:
            return Response("Ask something: /?q=...\n", status=400)
        answer = await self.env.AI.run(
            self.env.MODEL, {"messages": [{"role": "user", "content": asked[0]}]}
        )
        print(f"{answer.usage.total_tokens} tokens for {asked[0]!r}")
        return Response(answer.choices[0].message.content + "\n")
