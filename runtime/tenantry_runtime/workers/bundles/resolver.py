"""From requirements to a lock, and from a lock to a folder: pip, confined, wheels only.

A lock names each package with its version and the SHA-256 of its wheel:

| key of an entry | what |
|---|---|
| `name`, `version` | as the index has them |
| `sha256` | of the wheel, in hex |
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import msgspec
from packaging.requirements import Requirement
from packaging.tags import platform_tags

from tenantry_runtime.errors import ConfigurationError, DependenciesRefused
from tenantry_runtime.workers.spec import LockedPackage

from .confined import NO_LANDLOCK

TIMEOUT_S = 120.0
MAX_BYTES = 256 << 20
"""Of a set of dependencies, unpacked."""
MAX_FILES = 20_000
LOOK_S = 0.1
"""Between two looks at how much there is: a small wheel may unpack to all that a disk has."""
MAX_MESSAGE_CHARS = 2000

PIP = ["-m", "pip"]

_FILE_URL = "file://"


class _ArchiveInfo(msgspec.Struct):
    hashes: dict[str, str] = {}


class _DownloadInfo(msgspec.Struct):
    url: str
    archive_info: _ArchiveInfo | None = None


class _Metadata(msgspec.Struct):
    name: str
    version: str


class _Install(msgspec.Struct):
    download_info: _DownloadInfo
    metadata: _Metadata
    is_direct: bool = False


class _Report(msgspec.Struct):
    """pip's installation report, version 1 (pip's documentation, "Installation Report")."""

    install: list[_Install]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """Asks the operator's index, as pip on this machine is configured, or as `index_url` says."""

    python: str
    """Of the isolates: `3.11`."""
    index_url: str | None = None
    environ: Mapping[str, str]
    """The operator's: what it says to pip and of proxies is passed on, nothing else."""
    may_be_unconfined: bool = False
    """Where the kernel has no Landlock; else dependencies are refused there."""

    async def lock(self, requirements: Sequence[Requirement]) -> tuple[LockedPackage, ...]:
        """Return what to install, by name. Raises `DependenciesRefused` with pip's words."""
        if not requirements:
            return ()
        with _folder() as folder:
            report = folder / "report.json"
            await self._pip(
                folder,
                ["install", "--dry-run", "--ignore-installed", "--report", str(report)],
                [str(requirement) for requirement in requirements],
            )
            found = msgspec.json.decode(report.read_bytes(), type=_Report)
        return tuple(sorted(_locked(each) for each in found.install))

    async def install(self, lock: Sequence[LockedPackage], directory: Path) -> None:
        """Unpack the wheels of a lock into a new directory, which is there as a whole or not at all."""
        with _folder() as folder:
            listed = folder / "lock.txt"
            listed.write_text(
                "".join(f"{one.name}=={one.version} --hash=sha256:{one.sha256}\n" for one in lock)
            )
            await self._pip(
                folder,
                ["install", "--no-deps", "--no-compile", "--require-hashes", "-r", str(listed)],
                [],
            )
            unpacked = folder / "packages"
            await anyio.to_thread.run_sync(_tidy, unpacked)
            directory.parent.mkdir(parents=True, exist_ok=True)
            beside = Path(tempfile.mkdtemp(dir=directory.parent))
            try:
                await anyio.to_thread.run_sync(shutil.move, unpacked, beside / "packages")
                _rename_unless_there(beside / "packages", directory)
            finally:
                shutil.rmtree(beside, ignore_errors=True)

    async def _pip(self, folder: Path, command: list[str], requirements: list[str]) -> None:
        arguments = [
            *PIP,
            *command,
            "--target",
            str(folder / "packages"),
            "--only-binary=:all:",
            "--no-input",
            "--no-color",
            "--quiet",
            "--no-cache-dir",
            "--disable-pip-version-check",
            *self._target_options(),
            *(["--index-url", self.index_url] if self.index_url is not None else []),
            "--",
            *requirements,
        ]
        module = "tenantry_runtime.workers.bundles.confined"
        confined = ["-m", module, str(folder), ":".join(self._readable())]
        ran = await self._run(folder, [sys.executable, "-I", *confined, *arguments])
        if ran.returncode == NO_LANDLOCK:
            if not self.may_be_unconfined:
                raise ConfigurationError(
                    "this kernel has no Landlock, without which packages are not unpacked here"
                )
            ran = await self._run(folder, [sys.executable, "-I", *arguments])
        if ran.returncode != 0:
            raise DependenciesRefused(_said(ran.stderr.decode(errors="replace")))

    async def _run(self, folder: Path, command: list[str]) -> _Ran:
        with anyio.move_on_after(TIMEOUT_S) as deadline:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_too_large, folder, tasks.cancel_scope)
                ran = await anyio.run_process(
                    command, check=False, env=self._environment(folder), cwd=folder
                )
                tasks.cancel_scope.cancel()
                return _Ran(ran.returncode, ran.stderr)
            raise DependenciesRefused(
                f"unpacked, they have more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB"
            )
        assert deadline.cancelled_caught
        raise DependenciesRefused(f"not resolved within {TIMEOUT_S:.0f} s: pin versions")

    def _target_options(self) -> list[str]:
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        if self.python == here:
            return []
        digits = self.python.replace(".", "")
        options = ["--python-version", self.python, "--implementation", "cp"]
        for abi in (f"cp{digits}", "abi3", "none"):
            options += ["--abi", abi]
        for platform in platform_tags():
            options += ["--platform", platform]
        return options

    def _environment(self, folder: Path) -> dict[str, str]:
        passed = {
            name: value
            for name, value in self.environ.items()
            if name.startswith("PIP_")
            or name.lower() in {"http_proxy", "https_proxy", "no_proxy", "all_proxy"}
        }
        return {**passed, "HOME": str(folder), "TMPDIR": str(folder), "PATH": "/usr/bin:/bin"}

    def _readable(self) -> list[str]:
        """Return where wheels lie on this machine, and certificates."""
        said = " ".join(
            self.environ.get(name, "")
            for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT")
        )
        places = [*said.split(), self.index_url or ""]
        paths = [place.removeprefix(_FILE_URL) for place in places]
        return [path for path in paths if path.startswith("/")]


@dataclass(frozen=True, slots=True)
class _Ran:
    returncode: int
    stderr: bytes


class _folder:
    """A temporary folder that pip may write."""

    def __enter__(self) -> Path:
        self._made = tempfile.mkdtemp(prefix="tenantry-packages-")
        return Path(self._made)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._made, ignore_errors=True)


async def _until_too_large(folder: Path, scope: anyio.CancelScope) -> None:
    """Cancel a scope when pip has written more than wheels and what is in them may have."""
    while True:
        num_files, num_bytes = await anyio.to_thread.run_sync(size_of, folder)
        if num_files > 2 * MAX_FILES or num_bytes > 2 * MAX_BYTES:
            scope.cancel()
            return
        await anyio.sleep(LOOK_S)


def size_of(folder: Path) -> tuple[int, int]:
    """Return the files and the bytes in a folder that somebody writes to."""
    num_files = num_bytes = 0
    for parent, _, names in os.walk(folder):
        num_files += len(names)
        for name in names:
            with suppress(FileNotFoundError):
                num_bytes += os.lstat(os.path.join(parent, name)).st_size
    return num_files, num_bytes


def _locked(install: _Install) -> LockedPackage:
    info = install.download_info.archive_info
    sha256 = info.hashes.get("sha256") if info is not None else None
    name, version = install.metadata.name, install.metadata.version
    if install.is_direct or sha256 is None:
        raise DependenciesRefused(f"{name} {version}: the index has no wheel with a SHA-256")
    return LockedPackage(name=name, version=version, sha256=sha256)


def _tidy(unpacked: Path) -> None:
    """Leave packages alone: no programs, nothing that a start would run, no way out of the folder."""
    if not unpacked.exists():
        unpacked.mkdir()
    shutil.rmtree(unpacked / "bin", ignore_errors=True)
    num_files, num_bytes = 0, 0
    for folder, _, names in os.walk(unpacked):
        for name in names:
            path = Path(folder) / name
            if path.is_symlink() or not path.is_file():
                raise DependenciesRefused(f"{path.relative_to(unpacked)} is no plain file")
            if path.suffix == ".pth" and path.parent == unpacked:
                path.unlink()
                continue
            num_files += 1
            num_bytes += path.stat().st_size
            path.chmod(0o444)
    if num_files > MAX_FILES or num_bytes > MAX_BYTES:
        raise DependenciesRefused(
            f"{num_files} files of {num_bytes / (1 << 20):.0f} MiB unpacked; {MAX_FILES} files and "
            f"{MAX_BYTES >> 20} MiB are allowed"
        )


def _rename_unless_there(made: Path, directory: Path) -> None:
    try:
        made.rename(directory)
    except OSError:
        # another has been faster: the same lock gives the same files
        if not directory.is_dir():
            raise


def _said(stderr: str) -> str:
    lines = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if "ERROR" in line]
    text = "; ".join(dict.fromkeys(lines)) or stderr.strip() or "pip failed without a word"
    return text[:MAX_MESSAGE_CHARS]
