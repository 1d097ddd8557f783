"""Workers' secrets: put, listed by name, deleted; never shown."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from tenantry_runtime.errors import InvalidInput, NoSuchRecord
from tenantry_runtime.tenancy.secrets import Plaintext

from .call import Call, success

SECRET_TEXT = "secret_text"

MAX_BULK = 100


class SecretInput(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    text: str
    type: str = SECRET_TEXT

    def __repr__(self) -> str:
        return f"SecretInput(name={self.name!r}, text='[secret]')"


class BulkInput(msgspec.Struct, frozen=True, kw_only=True):
    """Secrets by name; null deletes one."""

    secrets: Mapping[str, SecretInput | None]


async def list_secrets(call: Call) -> Response:
    """List the secrets of the newest version."""
    found = await call.services.workers.secrets.list(call.account, call.worker)
    return success([_shown(each.name) for each in found])


async def put_secret(call: Call) -> Response:
    """Put a secret and deploy it at once."""
    given = await call.json(SecretInput)
    _check(given)
    await _change(call, {given.name: Plaintext(given.text)})
    return success(_shown(given.name), status=201)


async def show_secret(call: Call) -> Response:
    """Say that there is a secret."""
    await _require(call)
    return success(_shown(call.request.path_params["secret"]))


async def delete_secret(call: Call) -> Response:
    """Delete a secret and deploy that at once."""
    await _require(call)
    await _change(call, {call.request.path_params["secret"]: None})
    return success(None)


async def change_secrets(call: Call) -> Response:
    """Put and delete several secrets at once."""
    given = (await call.json(BulkInput, max_bytes=4 << 20)).secrets
    if len(given) > MAX_BULK:
        raise InvalidInput("secrets", f"are {len(given)}; {MAX_BULK} are allowed at one time")
    values: dict[str, Plaintext | None] = {}
    for name, secret in given.items():
        if secret is not None and secret.name != name:
            raise InvalidInput("secrets", f"{name!r} is called {secret.name!r} inside")
        if secret is not None:
            _check(secret)
        values[name] = None if secret is None else Plaintext(secret.text)
    if values:
        await _change(call, values)
    return await list_secrets(call)


def _check(given: SecretInput) -> None:
    if given.type != SECRET_TEXT:
        raise InvalidInput("type", f"must be {SECRET_TEXT!r}, not {given.type[:32]!r}")


async def _change(call: Call, values: Mapping[str, Plaintext | None]) -> None:
    await call.services.workers.secrets.change(
        call.account, call.worker, values, call.notes("secret")
    )


async def _require(call: Call) -> None:
    wanted = call.request.path_params["secret"]
    found = await call.services.workers.secrets.list(call.account, call.worker)
    if wanted not in [each.name for each in found]:
        raise NoSuchRecord("secret", wanted)


def _shown(name: str) -> dict[str, str]:
    return {"name": name, "type": SECRET_TEXT}
