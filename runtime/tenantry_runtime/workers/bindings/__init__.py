"""What workers find in `env`, and answers when they call it."""

from .host import HostBindings, open_bindings
from .outbound.config import HostRules, OutboundConfig

__all__ = ["HostBindings", "HostRules", "OutboundConfig", "open_bindings"]
