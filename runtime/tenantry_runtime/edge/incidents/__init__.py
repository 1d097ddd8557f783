"""What goes wrong with nodes, as one edge sees it, on its way to the store."""

from .nodes import NodeIncidents
from .recorder import IncidentRecorder, recording

__all__ = ["IncidentRecorder", "NodeIncidents", "recording"]
