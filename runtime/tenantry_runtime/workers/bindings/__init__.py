"""What workers find in `env`, and answers when they call it."""

from .host import HostBindings, open_bindings
from .outbound.config import HostRules, OutboundConfig
from .traced_calls import TracedCalls

__all__ = ["HostBindings", "HostRules", "OutboundConfig", "TracedCalls", "open_bindings"]
