"""Runs child processes until a signal, or until one of them ends by itself."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import anyio

from tenantry_runtime.deployment.plan import EDGE
from tenantry_runtime.pool.loop_link import how_it_ended

from .children import Child, start_child
from .console import Console
from .parts import Part
from .state import StateDirectory

PATIENT_S = 2.0
"""After which a person wonders why it has not ended."""


async def supervise(
    parts: Sequence[Part],
    state: StateDirectory,
    console: Console,
    *,
    welcome: Callable[[], Awaitable[bool]],
) -> int:
    """Start the parts, and end them all with the first thing that ends; return the exit code.

    A node that was drained ends alone. `welcome` runs beside them and says when they serve; False
    ends everything, as an error that it has told of.
    """
    with anyio.open_signal_receiver(*_stop_signals()) as signals:
        async with AsyncExitStack() as stack:
            children = [
                await stack.enter_async_context(
                    start_child(
                        part.name,
                        part.module,
                        str(part.config),
                        log=state.log(part.name),
                        grace_s=part.grace_s,
                    )
                )
                for part in parts
            ]
            exit_codes: list[int] = []
            async with anyio.create_task_group() as tasks:

                async def first_to_end(cause: Callable[[], Awaitable[int]]) -> None:
                    exit_codes.append(await cause())
                    tasks.cancel_scope.cancel()

                async def a_signal() -> int:
                    async for _ in signals:
                        break
                    return 0

                async def a_failed_welcome() -> int:
                    if await welcome():
                        await anyio.sleep_forever()
                    return 1

                tasks.start_soon(first_to_end, a_signal)
                running = {child.name for child in children}
                for child in children:
                    tasks.start_soon(
                        first_to_end, lambda child=child: _death(child, running, console)
                    )
                tasks.start_soon(first_to_end, a_failed_welcome)
            console.line("Stopping")
            await _stop(children, signals, console)
    return exit_codes[0]


async def _stop(
    children: Sequence[Child], signals: AsyncIterator[signal.Signals], console: Console
) -> None:
    """Let children end, all at once; another signal, or the end of their time, kills them."""
    for child in children:
        child.terminate()
    patience_s = max(child.grace_s for child in children)

    async with anyio.create_task_group() as tasks:

        async def kill_on_signal() -> None:
            async for _ in signals:
                tasks.cancel_scope.cancel()

        async def say_how_long() -> None:
            await anyio.sleep(PATIENT_S)
            console.line(
                f"Running answers have up to {patience_s:.0f} s; Ctrl-C again ends them now"
            )

        tasks.cancel_scope.deadline = anyio.current_time() + patience_s
        tasks.start_soon(kill_on_signal)
        tasks.start_soon(say_how_long)
        for child in children:
            await child.process.wait()
        tasks.cancel_scope.cancel()
    for child in children:
        child.kill()


def _stop_signals() -> list[signal.Signals]:
    stop = [signal.SIGINT, signal.SIGTERM]
    # ignored under nohup, where closing the terminal must not end anything
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        stop.append(signal.SIGHUP)
    return stop


async def _death(child: Child, running: set[str], console: Console) -> int:
    """Wait until a child ends by itself, which is an error, but of a node that was asked to drain.

    The others go on then, while there are any.
    """
    code = await child.process.wait()
    running.discard(child.name)
    if code == 0 and child.name != EDGE:
        console.line(f"{child.name} has ended, as it was asked to")
        if running:
            await anyio.sleep_forever()
        return 0
    console.died(child.name, how_it_ended(code), child.log, child.log_tail())
    return 1
