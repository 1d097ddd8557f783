"""Summarize a page every hour; the latest summary is at http://cron-summarizer.dev.localhost:8787/"""

from datetime import UTC, datetime

from workers import Response, WorkerEntrypoint, fetch

MAX_CHARACTERS = 20_000
KEPT_S = 7 * 24 * 3600


class Default(WorkerEntrypoint):
    async def scheduled(self, controller):
        page = await fetch(self.env.SOURCE)
        if not page.ok:
            raise RuntimeError(f"{self.env.SOURCE} answered {page.status}")
        text = (await page.text())[:MAX_CHARACTERS]
        order = "Summarize this page in three sentences:"
        answer = await self.env.AI.run(
            self.env.MODEL, {"messages": [{"role": "user", "content": f"{order}\n\n{text}"}]}
        )
        due = datetime.fromtimestamp(controller.scheduledTime / 1000, UTC)
        summary = answer.choices[0].message.content
        await self.env.SUMMARIES.put(
            f"{due:%Y-%m-%dT%H:%M}",
            summary,
            expirationTtl=KEPT_S,
            metadata={"source": self.env.SOURCE, "tokens": answer.usage.total_tokens},
        )
        print(f"summarized {self.env.SOURCE} for {due:%H:%M}")

    async def fetch(self):
        listed = await self.env.SUMMARIES.list()
        if not listed["keys"]:
            return Response("Nothing has been summarized yet.\n", status=404)
        latest = listed["keys"][-1]
        text = await self.env.SUMMARIES.get(latest["name"])
        return Response(f"{latest['name']} {latest.metadata.source}\n\n{text}\n")
