"""The process of a contender: `python -m tenantry_recipes.bench.child_process FD`.

FD is the connection to its `child.ChildContender`.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, assert_never

from .child import Command, Failure, Generate, TellPeak
from .contender import (
    Contender,
    EngineSettings,
    HttpSettings,
    Run,
    Settings,
    TransformersSettings,
)


def serve(connection: Connection[Any, Any]) -> None:
    """Obey until the other end is closed."""
    contender: Contender | None = None
    try:
        settings: Settings = connection.recv()
        contender = load(settings)
        while True:
            connection.send(_obey(contender, connection.recv()))
    except EOFError:
        pass
    except Exception:
        # told where the figures are asked for
        connection.send(Failure(traceback.format_exc()))
    finally:
        if contender is not None:
            contender.close()


def load(settings: Settings) -> Contender:
    """Load a contender; imports here, for each process takes the memory of its own engine only."""
    match settings:
        case EngineSettings():
            from .engine_side import EngineContender

            return EngineContender.load(settings)
        case HttpSettings():
            from .http_side import HttpContender

            return HttpContender.start(settings)
        case TransformersSettings():
            from .transformers_side import TransformersContender

            return TransformersContender.load(settings)
        case _:
            assert_never(settings)


def _obey(contender: Contender, command: Command) -> Run | int:
    match command:
        case Generate(prompts, num_tokens):
            return contender.generate(prompts, num_tokens)
        case TellPeak():
            return contender.peak_bytes()
        case _:
            assert_never(command)


def main(arguments: Sequence[str]) -> None:
    (descriptor,) = arguments
    with Connection(int(descriptor)) as connection:
        serve(connection)


if __name__ == "__main__":
    main(sys.argv[1:])
