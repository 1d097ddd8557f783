"""Chat with a model on a page: http://streaming-chat.dev.localhost:8787/"""

from urllib.parse import urlsplit

from workers import Response, WorkerEntrypoint

PAGE = """<!doctype html>
<title>Chat</title>
<main></main>
<form><input autofocus size="60"><button>Send</button></form>
<script>
const messages = []
const show = (role) => document.querySelector("main").appendChild(
  Object.assign(document.createElement("p"), { title: role }))
document.querySelector("form").onsubmit = async (event) => {
  event.preventDefault()
  const input = event.target.querySelector("input")
  messages.push({ role: "user", content: input.value })
  show("user").textContent = input.value
  input.value = ""
  const answer = { role: "assistant", content: "" }
  const line = show("assistant")
  const response = await fetch("/chat", { method: "POST", body: JSON.stringify({ messages }) })
  let rest = ""
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    const events = (rest + text).split("\\n\\n")
    rest = events.pop()
    for (const event of events.filter((each) => each !== "data: [DONE]")) {
      answer.content += JSON.parse(event.slice(6)).choices[0]?.delta.content ?? ""
      line.textContent = answer.content
    }
  }
  messages.push(answer)
}
</script>
"""


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        match (request.method, urlsplit(request.url).path):
            case ("GET", "/"):
                return Response(PAGE, headers={"content-type": "text/html;charset=UTF-8"})
            case ("POST", "/chat"):
                asked = await request.json()
                # nobody reads it here: the runtime carries it past this worker
                stream = await self.env.AI.run(
                    self.env.MODEL, {"messages": asked["messages"], "stream": True}
                )
                return Response(stream, headers={"content-type": "text/event-stream"})
            case _:
                return Response("Not found\n", status=404)
