"""What a template, and a probe, start with: `python -I -S start.py MODULE ARGUMENT`.

This folder becomes a package under another name, without the code of the runtime's side, and the
module's `main` is called.
"""

from __future__ import annotations

import importlib
import os
import sys
import types


def _main() -> None:
    package = types.ModuleType("_sandbox")
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules["_sandbox"] = package
    importlib.import_module(f"_sandbox.{sys.argv[1]}").main(sys.argv[2])


if __name__ == "__main__":
    _main()
