"""What an operator sees of an edge and its nodes: metrics, an overview, a page."""

from .access import OperatorAccess
from .routes import Operating, operator_routes

__all__ = ["Operating", "OperatorAccess", "operator_routes"]
