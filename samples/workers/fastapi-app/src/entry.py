"""A FastAPI application as a worker; its own pages are at /docs."""

import asgi
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from workers import WorkerEntrypoint

app = FastAPI(title="Translator")


class Text(BaseModel):
    text: str = Field(min_length=1, max_length=2000)
    language: str = "French"


def messages_for(asked: Text):
    order = f"Translate into {asked.language}. Answer with the translation only."
    return [{"role": "system", "content": order}, {"role": "user", "content": asked.text}]


@app.post("/translate")
async def translate(asked: Text, request: Request):
    env = request.scope["env"]
    answer = await env.AI.run(env.MODEL, {"messages": messages_for(asked)})
    if answer.choices[0].finish_reason != "stop":
        raise HTTPException(502, "the translation was cut")
    return {"language": asked.language, "text": answer.choices[0].message.content}


@app.post("/translate/stream")
async def translate_stream(asked: Text, request: Request):
    env = request.scope["env"]
    stream = await env.AI.run(env.MODEL, {"messages": messages_for(asked), "stream": True})

    async def words():
        async for chunk in stream.events():
            if chunk.choices:
                yield chunk.choices[0].delta.get("content") or ""

    return StreamingResponse(words(), media_type="text/plain")


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        return await asgi.fetch(app, request.js_object, self.env)
