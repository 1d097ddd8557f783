"""`workerctl`: the command line of operators and tenants."""
