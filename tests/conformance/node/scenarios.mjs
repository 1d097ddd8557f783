// What a client is put through: each scenario's answer, or its stack, printed as one JSON object.

const { TENANTRY_BASE_URL, TENANTRY_ACCOUNT_ID, TENANTRY_API_TOKEN, MODEL } = process.env;
export const BASE_URL = TENANTRY_BASE_URL;
export const ACCOUNT_ID = TENANTRY_ACCOUNT_ID;
export const API_TOKEN = TENANTRY_API_TOKEN;
export { MODEL };

export const SUM = "What is 17 + 25?";
export const BOOKING = "Please book a table in Rome for 4 guests.";
export const BOOKED = { id: "b7k2" };
export const SCHEMA = {
  type: "object",
  properties: { city: { type: "string" }, guests: { type: "integer" } },
  required: ["city", "guests"],
};
export const EXTRACTION =
  `Extract the values as JSON.\n${JSON.stringify(SCHEMA)}\n\nThe city is Rome. The guests is 4.`;

export async function main(scenarios) {
  const answers = {};
  for (const [name, scenario] of Object.entries(scenarios)) {
    try {
      answers[name] = { answer: await scenario() };
    } catch (error) {
      answers[name] = { failure: `${error.stack}\n${JSON.stringify(error)}` };
    }
  }
  console.log(JSON.stringify(answers));
}
