"""The control plane: what deploys, changes and shows workers, as Cloudflare's clients ask for it."""

from .routes import control_routes
from .services import (
    ControlLimits,
    ControlServices,
    Dependencies,
    Interpreter,
    StartUpCheck,
    TailAddress,
    Tails,
)

__all__ = [
    "ControlLimits",
    "ControlServices",
    "Dependencies",
    "Interpreter",
    "StartUpCheck",
    "TailAddress",
    "Tails",
    "control_routes",
]
