"""Applications of WSGI, such as Flask's, as workers: each request in a thread.

    class Default(WorkerEntrypoint):
        async def fetch(self, request):
            return await wsgi.fetch(app, request, self.env)

The application finds `env` in `environ["workers.env"]`. Its bindings are for async code: an application
that calls them is better written for ASGI.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

from ._entrypoints import Context
from ._env import Env
from ._host import current
from ._mount import mount_of
from ._request import Request
from ._response import NULL_BODY, Response
from ._streams import ReadableStream

App: TypeAlias = Callable[[dict[str, Any], Any], Iterable[bytes]]


async def fetch(
    app: App, request: Request, env: Env | None = None, ctx: Context | None = None
) -> Response:
    """Have an application answer a request; its pieces are sent as it makes them."""
    environ = _environ_of(request, await request.bytes())
    environ["workers.env"] = current().env if env is None else env
    return await asyncio.to_thread(_Exchange(app, environ).begin)


class _Exchange:
    """One call of an application, which may run in several threads, one after the other."""

    def __init__(self, app: App, environ: dict[str, Any]) -> None:
        self._app = app
        self._environ = environ
        self._status: int | None = None
        self._headers: list[tuple[str, str]] = []
        self._written: list[bytes] = []
        self._result: Iterable[bytes] = ()
        self._pieces: Iterator[bytes] = iter(())

    def begin(self) -> Response:
        """Call the application, up to its first piece: it may wait so long to name the status."""
        self._result = self._app(self._environ, self._start_response)
        self._pieces = iter(self._result)
        first = next(self._pieces, None)
        if self._status is None:
            raise RuntimeError("the application did not call start_response")
        whole = isinstance(self._result, list | tuple)
        self._written += [] if first is None else [first]
        if first is None or whole or self._status in NULL_BODY:
            body = b"".join([*self._written, *self._pieces])
            self.close()
            content = None if self._status in NULL_BODY else body
            return Response(content, self._status, headers=self._headers)
        return Response(ReadableStream(self), self._status, headers=self._headers)

    def __aiter__(self) -> _Exchange:
        return self

    async def __anext__(self) -> bytes:
        if self._written:
            piece, self._written = b"".join(self._written), []
            return piece
        following = await asyncio.to_thread(next, self._pieces, None)
        if following is None:
            await self.aclose()
            raise StopAsyncIteration
        return following

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Tell the application, once, that nothing more is asked of it."""
        result, self._result = self._result, ()
        if close := getattr(result, "close", None):
            close()

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], object]:
        self._status = int(status.split(" ", 1)[0])
        self._headers = list(headers)
        return self._written.append


def _environ_of(request: Request, body: bytes) -> dict[str, Any]:
    url = urlsplit(request.url)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": str(request.method),
        "SCRIPT_NAME": mount_of(request),
        "PATH_INFO": unquote_to_bytes(url.path).decode("latin-1"),
        "QUERY_STRING": url.query,
        "SERVER_NAME": url.hostname or "",
        "SERVER_PORT": str(url.port or (443 if url.scheme == "https" else 80)),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": request.headers.get("cf-connecting-ip", ""),
        "CONTENT_TYPE": request.headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": url.scheme,
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in request.headers.items():
        # `cf_connecting_ip` would be taken for `cf-connecting-ip`, which no client can send
        if name not in ("content-type", "content-length") and "_" not in name:
            environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
    return environ
