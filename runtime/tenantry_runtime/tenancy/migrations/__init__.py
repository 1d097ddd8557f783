"""The store's history, one revision per file in `versions`; run by `tenancy.migrate`."""
