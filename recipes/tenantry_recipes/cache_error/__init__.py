"""What the cache's row formats cost in attention's output: `python -m tenantry_recipes.cache_error`."""
