"""Kimi K2 (Instruct, Thinking) and the text part of K2.5 and K2.6: DeepSeek-V3 with YaRN."""

from .description import MODEL_TYPES as MODEL_TYPES, describe as describe
