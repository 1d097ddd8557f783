"""Released checkpoints made into smaller ones: routed experts in INT4 (`workerctl models quantize`)."""

from .manifest import (
    MANIFEST_FILE as MANIFEST_FILE,
    Manifest as Manifest,
    read_manifest as read_manifest,
)
from .recipe import Recipe as Recipe
from .run import (
    DEFAULT_SHARD_BYTES as DEFAULT_SHARD_BYTES,
    Conversion as Conversion,
    Progress as Progress,
    Report as Report,
    convert as convert,
)
