"""Tokenizers, chat templates and the output machine: everything between messages and token ids."""

from .constraints import Constraints
from .family import FamilyName, SamplingDefaults
from .grammar import Wanted
from .load import load_text
from .machine import OutputMachine
from .model import TextModel
from .prompt import Control, OutputState, Part, Prompt, Text
from .sources import template_digest, tokenizer_digest
from .stop import StopStrings
from .targets import training_ids

__all__ = [
    "Constraints",
    "Control",
    "FamilyName",
    "OutputMachine",
    "OutputState",
    "Part",
    "Prompt",
    "SamplingDefaults",
    "StopStrings",
    "Text",
    "TextModel",
    "Wanted",
    "load_text",
    "template_digest",
    "tokenizer_digest",
    "training_ids",
]
