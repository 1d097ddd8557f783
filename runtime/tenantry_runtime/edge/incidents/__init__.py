"""What goes wrong with nodes and tenants, as one edge sees it, on its way to the store."""

from .nodes import NodeIncidents
from .recorder import IncidentRecorder, recording
from .storms import QuotaStorms, storm_watch

__all__ = ["IncidentRecorder", "NodeIncidents", "QuotaStorms", "recording", "storm_watch"]
