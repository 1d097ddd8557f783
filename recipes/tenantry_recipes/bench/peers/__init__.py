"""The runtime next to other servers, over HTTP, on one random checkpoint in BF16."""
