"""What it costs to run prefill and decode as pools of their own."""
