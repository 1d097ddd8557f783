// The AI SDK with Cloudflare's provider of Workers AI.

import { generateObject, generateText, isStepCount, Output, streamObject, streamText, tool } from "ai";
import { createWorkersAI } from "workers-ai-provider";
import { z } from "zod";

import {
  ACCOUNT_ID, API_TOKEN, BASE_URL, BOOKED, BOOKING, EXTRACTION, MODEL, SUM, main,
} from "./scenarios.mjs";

// the provider has no setting for a base URL, but takes a `fetch`
const OFFICIAL_URL = "https://api.cloudflare.com/client/v4";
const workersai = createWorkersAI({
  accountId: ACCOUNT_ID,
  apiKey: API_TOKEN,
  fetch: (url, init) => fetch(String(url).replace(OFFICIAL_URL, BASE_URL), init),
});
const model = workersai(MODEL);
const schema = z.object({ city: z.string(), guests: z.int() });
const settings = { model, temperature: 0, maxRetries: 0 };

const bookings = [];
const tools = {
  book_table: tool({
    description: "Book a table.",
    inputSchema: schema,
    execute: async (booking) => {
      bookings.push(booking);
      return BOOKED;
    },
  }),
};

await main({
  async generated_text() {
    const answer = await generateText({ ...settings, prompt: SUM });
    return {
      text: answer.text,
      reasoning: answer.reasoningText,
      finish_reason: answer.finishReason,
      input_tokens: answer.usage.inputTokens,
      output_tokens: answer.usage.outputTokens,
    };
  },

  async streamed_text() {
    const answer = streamText({ ...settings, prompt: SUM, onError() {} });
    let text = "";
    for await (const piece of answer.textStream) text += piece;
    return { text, finish_reason: await answer.finishReason };
  },

  async tool_round() {
    const answer = await generateText({
      ...settings, prompt: BOOKING, tools, stopWhen: isStepCount(3),
    });
    return { told: answer.text, bookings: bookings.splice(0), num_steps: answer.steps.length };
  },

  async streamed_tool_round() {
    const answer = streamText({
      ...settings, prompt: BOOKING, tools, stopWhen: isStepCount(3), onError() {},
    });
    await answer.consumeStream();
    return { told: await answer.text, bookings: bookings.splice(0) };
  },

  async required_tool() {
    const answer = await generateText({ ...settings, prompt: BOOKING, tools, toolChoice: "required" });
    bookings.splice(0);
    return answer.toolCalls.map((call) => [call.toolName, call.input]);
  },

  async generated_object() {
    return (await generateObject({ ...settings, prompt: EXTRACTION, schema })).object;
  },

  async streamed_object() {
    const answer = streamObject({ ...settings, prompt: EXTRACTION, schema, onError() {} });
    let partial;
    for await (partial of answer.partialObjectStream);
    return { partial, object: await answer.object };
  },

  async streamed_object_as_output() {
    const output = Output.object({ schema });
    const answer = streamText({ ...settings, prompt: EXTRACTION, output, onError() {} });
    await answer.consumeStream();
    return await answer.output;
  },

  async object_as_output() {
    const output = Output.object({ schema });
    return (await generateText({ ...settings, prompt: EXTRACTION, output })).output;
  },

  async refused_parameter() {
    try {
      await generateText({ ...settings, temperature: 9, prompt: SUM });
    } catch (error) {
      return { status: error.statusCode, is_retryable: error.isRetryable, body: error.responseBody };
    }
  },

  async session() {
    const prompt = `Remember these: ${[...Array(400).keys()].join(" ")}. ${SUM}`;
    const model = workersai(MODEL, { sessionAffinity: "session-of-ai-sdk" });
    let usage;
    for (let i = 0; i < 2; i++) {
      ({ usage } = await generateText({ ...settings, model, prompt, maxOutputTokens: 1 }));
    }
    return [usage.inputTokenDetails?.cacheReadTokens, usage.inputTokens];
  },
});
