"""Run by the interpreter of isolates: prints, as JSON, what `interpreter.py` asks. Standard library only."""

from __future__ import annotations

import ctypes
import glob
import importlib
import importlib.util
import json
import os
import sys
import sysconfig

# modules of a terminal, of a screen, of a system's users or of Python's own tests: they bring many
# libraries, and no worker has a use for them
_NOT_IMPORTED = (
    "_curses",
    "_ctypes_test",
    "_dbm",
    "_gdbm",
    "_test",
    "_tkinter",
    "_xx",
    "nis",
    "readline",
    "xx",
)
# what wheels are allowed to expect of a system
_FOR_WHEELS = (
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
    "libutil.so.1",
    "libz.so.1",
)


class _Object(ctypes.Structure):
    """The beginning of `struct dl_phdr_info`."""

    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


def _import_extensions(path: list[str]) -> None:
    for folder in path:
        for file in glob.glob(os.path.join(folder, "*.so")):
            name = os.path.basename(file).partition(".")[0]
            if not name.startswith(_NOT_IMPORTED):
                _try_import(name)


def _try_import(name: str) -> None:
    try:
        importlib.import_module(name)
    except ImportError:
        # a module whose library this machine does not have
        return


def _load_for_wheels() -> None:
    for name in _FOR_WHEELS:
        try:
            ctypes.CDLL(name)
        except OSError:
            # another libc, or not installed
            continue


def _loaded() -> list[str]:
    names: list[str] = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Object), ctypes.c_size_t, ctypes.c_void_p)

    def add(found: ctypes._Pointer[_Object], _size: int, _context: int | None) -> int:
        name = found.contents.name
        if name and os.path.isabs(name):
            names.append(os.fsdecode(name))
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(kind(add), None)
    return names


def _msgspec_folder() -> str | None:
    import site

    site.main()
    found = importlib.util.find_spec("msgspec")
    return os.path.dirname(found.origin) if found and found.origin else None


def _main() -> None:
    path = [folder for folder in sys.path if os.path.isdir(folder)]
    _import_extensions(path)
    _load_for_wheels()
    inside = tuple(folder + os.sep for folder in path)
    answer = {
        "version": list(sys.version_info[:2]),
        "path": path,
        "libraries": [name for name in _loaded() if not name.startswith(inside)],
        "binary_interface": sysconfig.get_config_var("SOABI") or "",
        "msgspec_folder": _msgspec_folder(),
    }
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    _main()
