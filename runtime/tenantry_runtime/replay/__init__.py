"""A recorded hour of requests, sent again: to a running system, or to its scheduling on a simulated clock."""
