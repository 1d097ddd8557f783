"""Nodes: the process that hosts members, and what edges and nodes say to each other."""
