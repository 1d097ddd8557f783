"""What tenancy costs: limits, the ledger, and both over an edge."""
