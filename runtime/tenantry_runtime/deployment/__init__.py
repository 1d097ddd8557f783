"""A deployment: one TOML file for all machines that serve together, checked as a whole."""

from __future__ import annotations

from .file import CatalogPart, DeploymentFile, EdgePart, NodePart, PoolPart, StorePart
from .plan import Deployment, Edge, Member, Node, Pool
from .read import load_deployment
from .write import to_toml

__all__ = [
    "CatalogPart",
    "Deployment",
    "DeploymentFile",
    "Edge",
    "EdgePart",
    "Member",
    "Node",
    "NodePart",
    "Pool",
    "PoolPart",
    "StorePart",
    "load_deployment",
    "to_toml",
]
