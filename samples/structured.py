"""Get answers of a type. Start `workerctl dev` in another terminal first."""

import msgspec

from tenantry import AI, AnswerCut


class Booking(msgspec.Struct):
    city: str
    guests: int


# the schema constrains the answer; that the prompt names it too helps models as small as these
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "guests": {"type": "integer"}},
}
TEXT = "The city is Rome. The guests is 4."
PROMPT = f"Extract the values as JSON.\n{msgspec.json.encode(SCHEMA).decode()}\n\n{TEXT}"

with AI() as ai:
    try:
        booking = ai.run("kimi-k2.6", {"prompt": PROMPT, "temperature": 0}, response_format=Booking)
        print(f"{booking.guests} guests in {booking.city}")
    except AnswerCut as error:
        print(f"not whole: {error.text!r}")
