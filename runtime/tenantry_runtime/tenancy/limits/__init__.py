"""Limits per tenant and model, which all edge processes of a store share.

| file | what |
|---|---|
| rates | the arithmetic of a rate |
| terms | which limits there are for a request |
| balances | what tenants have left, and what that admits: no database, no clock |
| tables | rows that edges share |
| waiting | who waits to be admitted |
| meter | the task that asks the store |
| knowledge, headers | what is known without asking |
| limiter | all of it, as the edge asks for it |

Instants are those of each edge's own clock. Clocks that differ by d seconds let a rate of L a minute take
at most L * d / 60 more, once; an edge whose clock is `VOID_AFTER_MS` behind the others' has no open
requests in their eyes; and a day of neurons begins for each edge when its own clock says so.
"""

from .limiter import StoreLimiter, open_limiter

__all__ = ["StoreLimiter", "open_limiter"]
