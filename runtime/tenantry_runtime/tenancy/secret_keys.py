"""Keys that encrypt secrets: where they come from, and the file in which they are replaced.

| source, the first that is there | which of its keys encrypts | who replaces it |
|---|---|---|
| `TENANTRY_SECRETS_KEY` | the first of those that commas separate | the operator |
| the file that `TENANTRY_SECRETS_KEY_FILE` names | the first | the operator |
| `secrets.key` in the state directory, mode 0600 | the first | `workerctl tenant secret rotate-key` |

A key is 32 bytes in base64 or hexadecimal; a file has one on each line, the newest first, and may
have comments after `#`. All keys of a source decrypt. A line that begins with `next` has a key that
encrypts nothing as long as the store has nothing under it: other machines learn it before it is
used. A key's id, which the store keeps with each secret, is a digest that says nothing of the key.
"""

from __future__ import annotations

import binascii
import fcntl
import os
import secrets
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tenantry_runtime.durable import sync
from tenantry_runtime.errors import ConfigurationError

KEY_VARIABLE = "TENANTRY_SECRETS_KEY"
KEY_FILE_VARIABLE = "TENANTRY_SECRETS_KEY_FILE"
KEY_FILE = "secrets.key"

KEY_BYTES = 32
"""AES-256."""

NEXT = "next"

_ID_DOMAIN = b"tenantry secrets key id\0"
_ID_BYTES = 8
"""Ids are to be told apart by people; two keys of one store never meet in so many bits."""

_OTHERS_MODE = 0o077


@dataclass(frozen=True, slots=True)
class Key:
    """One AES-256 key. It prints as its id."""

    material: bytes

    def __post_init__(self) -> None:
        assert len(self.material) == KEY_BYTES

    @property
    def id(self) -> str:
        """Name the key without telling it."""
        return sha256(_ID_DOMAIN + self.material).digest()[:_ID_BYTES].hex()

    def __repr__(self) -> str:
        return f"Key({self.id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing:
    """The keys of one source."""

    keys: tuple[Key, ...]
    """The newest first."""
    following: Key | None = None
    """Decrypts, and encrypts once the store has something under it."""

    @property
    def all(self) -> tuple[Key, ...]:
        return self.keys if self.following is None else (self.following, *self.keys)

    def find(self, key_id: str) -> Key | None:
        return next((key for key in self.all if key.id == key_id), None)


class KeySource:
    """Keys as they are now: every call reads them anew, so that a process sees a rotation."""

    def __init__(self, state_dir: Path, *, environ: Mapping[str, str] = os.environ) -> None:
        """Raises `ConfigurationError` where two variables contradict each other."""
        self._text = environ.get(KEY_VARIABLE) or None
        named = environ.get(KEY_FILE_VARIABLE) or None
        if self._text is not None and named is not None:
            raise ConfigurationError(f"set {KEY_VARIABLE} or {KEY_FILE_VARIABLE}, not both")
        self._path = state_dir / KEY_FILE if named is None else Path(named)
        self.is_managed = self._text is None and named is None
        """Whether the keys are in the state directory's file, which is made and replaced here."""

    def __repr__(self) -> str:
        return f"KeySource({self.name})"

    @property
    def name(self) -> str:
        """Where a person finds the keys."""
        return str(self._path) if self._text is None else KEY_VARIABLE

    def load(self) -> KeyRing | None:
        """Return the keys; None where the state directory has no file yet.

        Raises `ConfigurationError` for a source that is unusable; what it says has no key in it.
        """
        if self._text is not None:
            return _ring(self._text.split(","), KEY_VARIABLE)
        try:
            if self.is_managed and os.stat(self._path).st_mode & _OTHERS_MODE:
                raise ConfigurationError(
                    f"{self._path} can be read by others; run: chmod 600 {self._path}"
                )
            lines = self._path.read_text("ascii").splitlines()
        except FileNotFoundError as error:
            if self.is_managed:
                return None
            raise ConfigurationError(
                f"{KEY_FILE_VARIABLE} names {self._path}, which is not there"
            ) from error
        except OSError as error:
            raise ConfigurationError(f"cannot read {self._path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{self._path} is no file of keys") from error
        return _ring((line.partition("#")[0] for line in lines), str(self._path))

    def load_or_make(self) -> KeyRing:
        """Return the keys; make the first where there is none."""
        found = self.load()
        if found is None:
            assert self.is_managed
            self._write(KeyRing(keys=(new_key(),)), may_replace=False)
            # another process may have been first
            found = self.load()
            assert found is not None
        return found

    def prepare(self) -> KeyRing:
        """Make the next key, unless there is one."""
        with self._locked():
            ring = self.load_or_make()
            if ring.following is None:
                self._write(KeyRing(keys=ring.keys, following=new_key()))
            return self.load_or_make()

    def advance(self) -> KeyRing:
        """Let a new key encrypt from now on.

        It is the next one where there is one; where older keys are still there, the rotation that
        made the newest was interrupted, and that is it.
        """
        with self._locked():
            ring = self.load_or_make()
            if ring.following is not None:
                self._write(KeyRing(keys=ring.all))
            elif len(ring.keys) == 1:
                self._write(KeyRing(keys=(new_key(), *ring.keys)))
            return self.load_or_make()

    def retire(self, key_ids: Iterable[str]) -> None:
        """Forget keys; what they have encrypted is lost."""
        gone = set(key_ids)
        with self._locked():
            ring = self.load_or_make()
            kept = tuple(key for key in ring.keys if key.id not in gone)
            self._write(KeyRing(keys=kept, following=ring.following))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let nobody else replace the keys meanwhile."""
        path = self._path.with_suffix(".lock")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = path.open("w")
        except OSError as error:
            raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, ring: KeyRing, *, may_replace: bool = True) -> None:
        """Replace the file at once, on the disk before anything is encrypted with what is new in it."""
        assert self.is_managed and ring.keys
        prefix = f"{NEXT} "
        lines = [
            f"{prefix if key is ring.following else ''}{b64encode(key.material).decode()}\n"
            for key in ring.all
        ]
        folder = self._path.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # mkstemp's files are the owner's alone
            descriptor, made = tempfile.mkstemp(dir=folder, prefix=f".{KEY_FILE}-")
            try:
                with open(descriptor, "w", encoding="ascii") as file:
                    file.writelines(lines)
                    file.flush()
                    os.fsync(file.fileno())
                if may_replace:
                    os.replace(made, self._path)
                else:
                    _link_unless_there(made, self._path)
            finally:
                Path(made).unlink(missing_ok=True)
            sync(folder)
        except OSError as error:
            raise ConfigurationError(f"cannot write {self._path}: {error.strerror}") from error


def new_key() -> Key:
    """Draw a key of 256 random bits."""
    return Key(secrets.token_bytes(KEY_BYTES))


def _ring(texts: Iterable[str], source: str) -> KeyRing:
    keys: list[Key] = []
    following: Key | None = None
    written = [text.strip() for text in texts if text.strip()]
    for number, text in enumerate(written, 1):
        is_next = text.startswith(f"{NEXT} ")
        key = _parsed(text.removeprefix(NEXT).strip() if is_next else text)
        if key is None:
            raise ConfigurationError(
                f"{source}: key {number} is not {KEY_BYTES} bytes in base64 or hexadecimal; "
                f"make one with: openssl rand -base64 {KEY_BYTES}"
            )
        if is_next and following is not None:
            raise ConfigurationError(f"{source}: more than one key is the next")
        if is_next:
            following = key
        else:
            keys.append(key)
    if not keys:
        raise ConfigurationError(f"{source}: there is no key that encrypts")
    return KeyRing(keys=tuple(dict.fromkeys(keys)), following=following)


def _parsed(text: str) -> Key | None:
    try:
        # 64 letters of base64 would be 48 bytes
        if len(text) == 2 * KEY_BYTES:
            return Key(binascii.unhexlify(text))
        padded = text.rstrip("=")
        padded += "=" * (-len(padded) % 4)
        material = b64decode(padded.translate(_FROM_URL_SAFE), validate=True)
    except ValueError:
        return None
    return Key(material) if len(material) == KEY_BYTES else None


_FROM_URL_SAFE = str.maketrans("-_", "+/")


def _link_unless_there(made: str, path: Path) -> None:
    try:
        os.link(made, path)
    except FileExistsError:
        pass
