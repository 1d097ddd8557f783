"""Products that there are elsewhere: a client that asks for one is told its name, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from tenantry_runtime.errors import NoSuchRecord

from .call import Call
from .errors import PRODUCT
from .metadata import REFUSED_BINDINGS

_CALL_A_SERVICE = "Call a service with `fetch`"

UNAVAILABLE: Mapping[str, tuple[str, str]] = {
    "r2": ("R2", REFUSED_BINDINGS["r2_bucket"][1]),
    "d1": ("D1", REFUSED_BINDINGS["d1"][1]),
    "queues": ("Queues", REFUSED_BINDINGS["queue"][1]),
    "workflows": ("Workflows", REFUSED_BINDINGS["workflow"][1]),
    "vectorize": ("Vectorize", REFUSED_BINDINGS["vectorize"][1]),
    "hyperdrive": ("Hyperdrive", REFUSED_BINDINGS["hyperdrive"][1]),
    "secrets_store": ("Secrets Store", REFUSED_BINDINGS["secrets_store_secret"][1]),
    "pipelines": ("Pipelines", REFUSED_BINDINGS["pipelines"][1]),
    "mtls_certificates": ("mTLS certificates", REFUSED_BINDINGS["mtls_certificate"][1]),
    "pages": ("Pages", "Deploy a worker that serves the files"),
    "containers": ("Containers", _CALL_A_SERVICE),
    "images": ("Images", _CALL_A_SERVICE),
    "stream": ("Stream", _CALL_A_SERVICE),
    "email": ("Email", _CALL_A_SERVICE),
    "browser-rendering": ("Browser Rendering", _CALL_A_SERVICE),
}
"""By what follows the account in their paths."""


async def refuse(call: Call) -> Response:
    """Say which product there is not."""
    asked = call.request.url.path
    name = next(name for name in UNAVAILABLE if f"/{call.account}/{name}" in asked)
    product, remedy = UNAVAILABLE[name]
    raise NoSuchRecord(PRODUCT, product, remedy)
