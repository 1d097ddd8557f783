"""Workers' outbound requests: the host sends them, and decides where they may go."""
