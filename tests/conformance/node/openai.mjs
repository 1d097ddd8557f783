// OpenAI's client for Node.

import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

import {
  ACCOUNT_ID, API_TOKEN, BASE_URL, BOOKED, BOOKING, EXTRACTION, MODEL, SCHEMA, SUM, main,
} from "./scenarios.mjs";

const client = new OpenAI({
  baseURL: `${BASE_URL}/accounts/${ACCOUNT_ID}/ai/v1`,
  apiKey: API_TOKEN,
  maxRetries: 0,
});
const chat = client.chat.completions;
const Booking = z.object({ city: z.string(), guests: z.int() });

const BOOK_TABLE = { name: "book_table", description: "Book a table.", parameters: SCHEMA };
const tools = [{ type: "function", function: BOOK_TABLE }];

const asking = (content) => ({
  model: MODEL, messages: [{ role: "user", content }], temperature: 0,
});

await main({
  async whole_answer() {
    const answer = await chat.create(asking(SUM));
    return {
      content: answer.choices[0].message.content,
      finish_reason: answer.choices[0].finish_reason,
      total_tokens: answer.usage.total_tokens,
    };
  },

  async streamed_answer() {
    let content = "";
    for await (const chunk of await chat.create({ ...asking(SUM), stream: true })) {
      content += chunk.choices[0]?.delta?.content ?? "";
    }
    return content;
  },

  async tool_runner() {
    const seen = [];
    const runner = chat.runTools({
      ...asking(BOOKING),
      tools: [
        {
          type: "function",
          function: {
            ...BOOK_TABLE,
            parse: JSON.parse,
            function: (booking) => {
              seen.push(booking);
              return BOOKED;
            },
          },
        },
      ],
    });
    return { told: await runner.finalContent(), seen };
  },

  async streamed_tool_call() {
    const stream = chat.stream({ ...asking(BOOKING), tools });
    const { message, finish_reason } = (await stream.finalChatCompletion()).choices[0];
    const calls = message.tool_calls.map((call) => [call.function.name, call.function.arguments]);
    return { calls, finish_reason };
  },

  async parsed_answer() {
    const format = zodResponseFormat(Booking, "booking");
    const answer = await chat.parse({ ...asking(EXTRACTION), response_format: format });
    return answer.choices[0].message.parsed;
  },

  async response() {
    const answer = await client.responses.create({ model: MODEL, input: SUM, temperature: 0 });
    return { text: answer.output_text, status: answer.status };
  },

  async streamed_response() {
    const stream = client.responses.stream({ model: MODEL, input: SUM, temperature: 0 });
    return (await stream.finalResponse()).output_text;
  },

  async parsed_response() {
    const answer = await client.responses.parse({
      model: MODEL,
      input: EXTRACTION,
      temperature: 0,
      text: { format: zodTextFormat(Booking, "booking") },
    });
    return answer.output_parsed;
  },

  async models() {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    return ids.sort();
  },

  async refused_parameter() {
    try {
      await chat.create({ ...asking(SUM), temperature: 9 });
    } catch (error) {
      return { status: error.status, param: error.param, message: error.message };
    }
  },
});
