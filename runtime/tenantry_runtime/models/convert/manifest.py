"""What lies in a converted directory, and from what it was made: `manifest.json`."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from tenantry_runtime.errors import ConversionError

from .recipe import Recipe

MANIFEST_FILE = "manifest.json"


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the directory."""

    sha256: str
    size_bytes: int


class SourceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint that was converted."""

    name: str
    """Of its directory; in a Hugging Face cache that is the commit."""
    revision: str
    """As `Checkpoint.revision` has it."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All of the directory but this file itself."""

    version: int = 1
    source: SourceRecord
    recipe: Recipe
    shard_bytes: int
    is_complete: bool
    """False: a conversion is under way, or was cut off."""
    files: dict[str, FileRecord]

    def difference(self, other: Manifest) -> str | None:
        """Say in what two conversions differ; None if both would write the same files."""
        for what, mine, theirs in (
            ("its source has revision", self.source.revision, other.source.revision),
            ("its recipe is", self.recipe, other.recipe),
            ("its shards have at most so many bytes:", self.shard_bytes, other.shard_bytes),
        ):
            if mine != theirs:
                return f"{what} {mine!r}, not {theirs!r}"
        return None


_DECODER = msgspec.json.Decoder(Manifest)


def read_manifest(directory: Path) -> Manifest | None:
    """Return a directory's manifest, None if it has none; raise ConversionError if it is unusable."""
    path = directory / MANIFEST_FILE
    try:
        return _DECODER.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ConversionError(
            str(path), f"cannot be read ({error}); remove the directory and convert again"
        ) from error


def encode_manifest(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def record(path: Path) -> FileRecord:
    """Return what the file is now, read from the disk."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
        return FileRecord(sha256=digest.hexdigest(), size_bytes=stream.tell())


def is_intact(path: Path, expected: FileRecord) -> bool:
    """Say whether the file is there and has the recorded content."""
    try:
        return path.stat().st_size == expected.size_bytes and record(path) == expected
    except FileNotFoundError:
        return False
