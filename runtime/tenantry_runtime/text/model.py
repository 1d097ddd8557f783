"""The text side of one model: conversations to token ids, token ids to events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenantry_runtime.core import Message, RenderOptions, Tool
from tenantry_runtime.errors import InvalidInput

from .family import Family, FamilyName, SamplingDefaults
from .machine import OutputMachine
from .output import Terminal
from .prompt import Control, OutputState, Part, Prompt, Text
from .template import ChatTemplate
from .tokenizer import Tokenizer


class TextModel:
    """Stateless and safe to share; made by `load_text`."""

    def __init__(
        self,
        *,
        family: Family,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        stop_token_ids: frozenset[int],
        sampling_defaults: SamplingDefaults,
        new_call_id: Callable[[], str],
    ) -> None:
        self.tokenizer = tokenizer
        self.stop_token_ids = stop_token_ids
        self.sampling_defaults = sampling_defaults
        self._family = family
        self._template = template
        self._new_call_id = new_call_id
        ids = tokenizer.controls.ids
        self._terminals = {
            ids[name]: terminal for name, terminal in family.terminals.items() if name in ids
        }

    @property
    def family(self) -> FamilyName:
        return self._family.name

    @property
    def vocab_size(self) -> int:
        """One more than the largest token id; logits at and past it mean nothing."""
        return self.tokenizer.vocab_size

    @property
    def control_ids(self) -> Mapping[str, int]:
        """Ids of control strings."""
        return self.tokenizer.controls.ids

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        options: RenderOptions,
        *,
        add_generation_prompt: bool = True,
    ) -> Prompt:
        """Put a conversation into the model's chat format.

        Raises `InvalidInput` where the conversation cannot be put so.
        """
        controls = self.tokenizer.controls
        try:
            context = self._family.context(messages, tools, options)
            escaped: dict[str, Any] = controls.escape_deep(context)
        except RecursionError as error:
            raise InvalidInput("tools", "a schema is nested too deeply") from error
        rendered = self._template.render(
            {**escaped, "add_generation_prompt": add_generation_prompt}
        )
        parts = controls.split(rendered)
        return Prompt(parts, self._state_after(parts))

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the prompt's token ids."""
        return [token_id for part in prompt.parts for token_id in self.encode_part(part)]

    def encode_part(self, part: Part) -> list[int]:
        """Return the token ids of one part; those of a prompt are its parts' joined."""
        match part:
            case Control(token_id):
                return [token_id]
            case Text(text):
                return self.tokenizer.encode(text)

    def length(self, text: str) -> int:
        """Count the tokens of ordinary text on its own."""
        return len(self.tokenizer.encode(text))

    def token_bytes(self, token_id: int) -> bytes:
        """Return a token's text in UTF-8, which may be a part of a character."""
        return self.tokenizer.token_bytes(token_id)

    def machine(
        self, initial: OutputState, tools: Sequence[Tool], messages: Sequence[Message] = ()
    ) -> OutputMachine:
        """Make the machine that reads one answer to a prompt that ended in `initial`.

        No call of the answer gets an id that one in `messages` has.
        """
        return OutputMachine(
            initial=initial,
            rules=self._family.rules,
            terminals=self._terminals,
            controls=self.tokenizer.controls,
            token_bytes=self.tokenizer.token_bytes,
            calls=self._family.calls(tools, messages, self._new_call_id),
        )

    def turn_end(self, message: Message) -> Control:
        """Return the control token with which the model ends this turn of its own."""
        family = self._family
        name = family.after_calls if message.tool_calls else family.after_answer
        return Control(self.tokenizer.controls.ids[name])

    def _state_after(self, parts: Sequence[Part]) -> OutputState:
        """Tell whether the rendered prompt has left the thinking open."""
        for part in reversed(parts):
            if isinstance(part, Control):
                is_open = self._terminals.get(part.id) is Terminal.THINK_OPEN
                return OutputState.REASONING if is_open else OutputState.CONTENT
        return OutputState.CONTENT
