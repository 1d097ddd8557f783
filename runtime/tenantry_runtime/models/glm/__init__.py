"""GLM-5, 5.1 and 5.2 (sparse attention) and GLM-4.7-Flash (dense)."""

from .description import MODEL_TYPES as MODEL_TYPES, describe as describe
