"""What workers cost: starts, requests, memory and streams."""
