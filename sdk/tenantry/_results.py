"""What a call returns: typed, and readable by key like the JSON that it came from.

`result.choices[0].message.content` and `result["choices"][0]["message"]["content"]` are the same.
Fields that this version does not know are ignored; a null stands for the field's default.
Annotations are real objects here, not strings: msgspec would resolve strings in the namespace of
`tenantry`, which these classes name as their module.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from .errors import AnswerCut, InvalidResponse, error_class

ParsedT = TypeVar("ParsedT")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON object with known fields, also readable by key."""

    # Any: as in any JSON object, the type of a field chosen by a string is not known
    def __getitem__(self, key: str) -> Any:
        if key not in self.__struct_fields__:
            raise KeyError(key)
        return getattr(self, key)

    def __contains__(self, key: object) -> bool:
        return key in self.__struct_fields__

    def __iter__(self) -> Iterator[str]:
        return iter(self.__struct_fields__)

    def __len__(self) -> int:
        return len(self.__struct_fields__)

    def keys(self) -> tuple[str, ...]:
        """Name the fields; with this, `dict(record)` works."""
        return self.__struct_fields__

    def get(self, key: str, default: Any = None) -> Any:
        """Return a field, or `default` for a name that is no field."""
        return self[key] if key in self else default


class PromptTokensDetails(Record, frozen=True, kw_only=True):
    """What of `prompt_tokens` was special."""

    cached_tokens: int = 0
    """Prompt tokens whose computation was found in the cache."""


class CompletionTokensDetails(Record, frozen=True, kw_only=True):
    """What of `completion_tokens` was special."""

    reasoning_tokens: int = 0
    """Tokens of the model's thinking."""


class Usage(Record, frozen=True, kw_only=True):
    """Tokens of one request; all zero if the server said nothing of them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptTokensDetails = PromptTokensDetails()
    completion_tokens_details: CompletionTokensDetails = CompletionTokensDetails()
    neurons: float | None = None
    """What it cost, 0.000011 USD each; None where the model has no price."""


class FunctionCall(Record, frozen=True, kw_only=True):
    """Which function the model calls, and with what."""

    name: str
    arguments: str
    """JSON text of an object."""


class ToolCall(Record, frozen=True, kw_only=True):
    """A call of one of the request's tools."""

    id: str
    type: str
    """`function`"""
    function: FunctionCall


# omit_defaults: a message goes back into the next request's `messages`, without the empty fields
class Message(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The model's answer; may go into the next request's `messages` as it is."""

    role: str
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    """The same as `reasoning`, under the name that some clients know."""
    refusal: str | None = None
    tool_calls: list[ToolCall] = []


class TokenAlternative(Record, frozen=True, kw_only=True):
    """A token that the model could have chosen, and how probable it was."""

    token: str
    logprob: float
    bytes: list[int] = []
    """The token's UTF-8, of which a character may take several tokens."""


class TokenLogprob(TokenAlternative, frozen=True, kw_only=True):
    """A token that the model chose."""

    top_logprobs: list[TokenAlternative] = []
    """The most probable tokens in its place, as many as `top_logprobs` asked for."""


class Logprobs(Record, frozen=True, kw_only=True):
    """How probable the answer's tokens were."""

    content: list[TokenLogprob] = []


class Choice(Record, frozen=True, kw_only=True):
    """One answer, and why it ended."""

    index: int = 0
    message: Message
    finish_reason: str | None = None
    """`stop`, `length` or `tool_calls`."""
    logprobs: Logprobs | None = None

    def parse(self, type: type[ParsedT]) -> ParsedT:
        """Read the content as JSON of a type; `AnswerCut` if the answer is not whole."""
        content = self.message.content or ""
        if self.finish_reason == "length":
            error = AnswerCut(
                f"the answer was cut after {len(content)} characters and is no whole "
                f"{type.__name__}; allow it more max_completion_tokens"
            )
            error.text = content
            raise error
        try:
            return msgspec.json.decode(content, type=type)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidResponse(
                f"the answer {content[:200]!r} (finish reason {self.finish_reason!r}) is no "
                f"{type.__name__}: {error}"
            ) from error


class Completion(Record, frozen=True, kw_only=True):
    """A whole answer."""

    id: str = ""
    object: str = "chat.completion"
    created: int = 0
    """Unix time in seconds."""
    model: str = ""
    choices: list[Choice]
    """As many as `n` asked for; `message`, `text` and so on are of the first."""
    usage: Usage = Usage()

    @property
    def message(self) -> Message:
        """What goes into the next request's `messages`."""
        return self.choices[0].message

    def parse(self, type: type[ParsedT]) -> ParsedT:
        """Read the first answer as JSON of a type; `AnswerCut` if it is not whole."""
        return self.choices[0].parse(type)

    @property
    def text(self) -> str:
        """The answer's content; empty if there is none, as in a turn that only calls tools."""
        return self.choices[0].message.content or ""

    @property
    def reasoning(self) -> str:
        """The model's thinking; empty if it did none."""
        message = self.choices[0].message
        return message.reasoning or message.reasoning_content or ""

    @property
    def tool_calls(self) -> list[ToolCall]:
        return self.choices[0].message.tool_calls

    @property
    def finish_reason(self) -> str | None:
        return self.choices[0].finish_reason


class BatchError(Record, frozen=True, kw_only=True):
    """Why one request of a batch has no answer."""

    message: str = ""
    code: int | None = None


class BatchResponse(Record, frozen=True, kw_only=True):
    """What came of one request of a batch."""

    id: int
    """Its place in the batch, from 0."""
    external_reference: str | None = None
    """What the request called itself."""
    success: bool = False
    result: Completion | None = None
    errors: list[BatchError] = []

    @property
    def completion(self) -> Completion:
        """The answer; raises the request's error if there is none."""
        if self.result is not None and self.success:
            return self.result
        code = next((each.code for each in self.errors if each.code is not None), None)
        said = "; ".join(each.message for each in self.errors) or "it failed"
        raise error_class(None, code)(f"request {self.id} of the batch: {said}", code=code)


class BatchResult(Record, frozen=True, kw_only=True):
    """What came of a batch, in the order of its requests."""

    responses: list[BatchResponse]
    usage: Usage = Usage()
    """Of all requests together."""


class BatchTicket(Record, frozen=True, kw_only=True):
    """What the server says when it has queued a batch."""

    request_id: str
    status: str = "queued"
    model: str = ""


class BatchPoll(Record, frozen=True, kw_only=True):
    """What the server says of a batch: where it stands, or what came of it."""

    status: str = ""
    responses: list[BatchResponse] | None = None
    usage: Usage = Usage()


class FunctionCallDelta(Record, frozen=True, kw_only=True):
    """A function's name, or more of its arguments."""

    name: str | None = None
    arguments: str = ""
    """More of the JSON text; the pieces joined are one object."""


class ToolCallDelta(Record, frozen=True, kw_only=True):
    """The beginning of a tool call (with `id` and name), or more of its arguments."""

    index: int
    id: str | None = None
    type: str | None = None
    function: FunctionCallDelta = FunctionCallDelta()


class Delta(Record, frozen=True, kw_only=True):
    """More of a message; what is not set has nothing new."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] = []


class ChunkChoice(Record, frozen=True, kw_only=True):
    """More of one answer, or its end."""

    index: int = 0
    delta: Delta = Delta()
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    """Of the tokens that this chunk brings."""


class Chunk(Record, frozen=True, kw_only=True):
    """One piece of a streamed answer."""

    id: str = ""
    object: str = "chat.completion.chunk"
    created: int = 0
    model: str = ""
    choices: list[ChunkChoice] = []
    """Empty in the chunk that carries only `usage`."""
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """More of the answer's content, or nothing."""
        return (self.choices[0].delta.content or "") if self.choices else ""

    @property
    def reasoning(self) -> str:
        """More of the model's thinking, or nothing."""
        if not self.choices:
            return ""
        delta = self.choices[0].delta
        return delta.reasoning or delta.reasoning_content or ""

    @property
    def tool_calls(self) -> list[ToolCallDelta]:
        return self.choices[0].delta.tool_calls if self.choices else []

    @property
    def finish_reason(self) -> str | None:
        """Set in the chunk that ends the answer."""
        return self.choices[0].finish_reason if self.choices else None


class ModelTask(Record, frozen=True, kw_only=True):
    """What a model is for."""

    id: str = ""
    name: str = ""
    description: str = ""


class ModelProperty(Record, frozen=True, kw_only=True):
    """One thing that is said of a model, such as its `context_window`."""

    property_id: str
    value: Any = None
    """A string, a list or an object, whatever the property is."""


class Model(Record, frozen=True, kw_only=True):
    """A model on offer."""

    id: str = ""
    name: str
    """What `run` takes, such as `@cf/moonshotai/kimi-k2.6`."""
    description: str = ""
    task: ModelTask = ModelTask()
    tags: list[str] = []
    properties: list[ModelProperty] = []

    def property_value(self, property_id: str) -> Any:
        """Return the value of one property, such as `context_window`; None if it has none."""
        for entry in self.properties:
            if entry.property_id == property_id:
                return entry.value
        return None


class CoveredOp(Record, frozen=True, kw_only=True):
    """One use of cache pages by one model in one phase on one node."""

    node: int = 0
    model: str
    phase: str
    op: str
    format: str = ""
    """Of what the pages hold."""
    device: str = ""
    checked: bool
    """Whether a page that is not the request's own is refused there."""


class Coverage(Record, frozen=True, kw_only=True):
    """What the runtime's nodes have found by trying, when they started."""

    all_checked: bool = False
    nodes_without_answer: int = 0
    ops: list[CoveredOp] = []
