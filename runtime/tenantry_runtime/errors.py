"""Everything that the runtime refuses or fails at, named by situation.

TenantryError
├── RequestError                 the request cannot be served as it is; nothing ran
│   ├── InvalidInput             a field is missing, unknown, mistyped or out of range
│   │   └── KvRefused            a key, value or option that a namespace cannot keep
│   ├── BodyTooLarge             the body is over the limit
│   ├── UnknownModel             no such id or alias; names near matches
│   ├── ContextExceeded          prompt and answer do not fit the model's context
│   ├── Unauthenticated          no token, or not one of ours
│   ├── Forbidden                a good token, for another account or other work
│   ├── AccountSuspended         a good token, but its account may call nothing for now
│   ├── LimitExceeded            the tenant's own limit; carries when to come back, and which limit
│   │   ├── RateExceeded         too many requests or tokens a minute, or too many at one time
│   │   └── QuotaExceeded        the day's neurons are used up
│   ├── NoSuchRecord             the store has no such account, plan or token
│   ├── RecordExists             the store has it already
│   ├── RecordInUse              others need it as it is
│   ├── ScriptRefused            what is uploaded cannot be a worker here; names file and line
│   ├── NewestNotDeployed        a worker's secret cannot be changed: the newest version waits
│   ├── DependenciesRefused      packages that a worker asks for cannot be had; says which
│   ├── RouteNotFound            no such path
│   └── MethodNotAllowed         a path that exists, another method
├── CapacityExceeded             the queue is full; carries when to come back
├── NodeUnavailable              no healthy node serves this model and phase
│   └── NodeLost                 the node that ran the request is gone
├── LedgerUnavailable            usage cannot be recorded now, so that nothing runs
├── StoreUnavailable             the store does not answer; nothing is known of the request
├── GenerationFailed             a node failed a request that it had accepted
│   ├── HandoffFailed            a prompt's pages did not get from one node to the other
│   ├── ReaderTooSlow            the request's own reader has fallen too far behind
│   └── CacheIntegrityError      a cache page was not the request's own; nothing of it was used
├── RequestTimeout               the request's own deadline passed
└── ConfigurationError           the operator's configuration or state directory is unusable
    ├── DependenciesMissing      packages of a worker's version are not on this machine
    ├── SecretKeyMissing         a secret is under a key that is not here; names it
    ├── SecretDamaged            a secret does not open with its own key
    ├── CheckpointError          a model directory is unusable; names file and tensor
    ├── DeploymentError          a deployment's file is wrong; names file and key
    ├── ConversionError          a checkpoint cannot be converted as asked; says what to do
    │   └── NotEnoughSpace       the disk has no room for it
    └── IncompatibleNode         edge and node cannot work together; names both sides' values

HTTP status and code of each live in one table, `edge/errors.py`.
"""

from __future__ import annotations


class TenantryError(Exception):
    """Base of every error that the runtime raises on purpose."""


class RequestError(TenantryError):
    """The request cannot be served as it is; nothing ran."""


class InvalidInput(RequestError, ValueError):
    """A field of the request is missing, unknown, mistyped or out of range."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(field, problem)

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}" if self.field else self.problem


class KvRefused(InvalidInput):
    """A key, value or option that a KV namespace cannot keep; with the status that Cloudflare has for it."""

    def __init__(self, field: str, problem: str, status: int = 400) -> None:
        self.status = status
        super().__init__(field, problem)
        self.args = (field, problem, status)


class BodyTooLarge(RequestError):
    """The request's body is over the limit."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        super().__init__(limit_bytes)

    def __str__(self) -> str:
        return f"the request body is larger than {self.limit_bytes} bytes"


class UnknownModel(RequestError, LookupError):
    """The catalog has no such id or alias."""

    def __init__(self, model: str, near: tuple[str, ...] = ()) -> None:
        self.model = model
        self.near = near
        super().__init__(model, near)

    def __str__(self) -> str:
        hint = f"; did you mean {' or '.join(self.near)}?" if self.near else ""
        return f"No such model {self.model}{hint}"


class ContextExceeded(RequestError):
    """Prompt and answer do not fit the model's context."""

    def __init__(self, num_tokens: int, limit: int) -> None:
        self.num_tokens = num_tokens
        self.limit = limit
        super().__init__(num_tokens, limit)

    def __str__(self) -> str:
        return (
            f"The estimated number of input and maximum output tokens ({self.num_tokens}) "
            f"exceeded this model context window limit ({self.limit})"
        )


class Unauthenticated(RequestError):
    """The request carries no token, or not one of ours."""

    def __str__(self) -> str:
        return "Authentication error"


class Forbidden(RequestError):
    """The token is good, but not for this account, or not for what is asked."""

    def __str__(self) -> str:
        return "Authentication error"


class AccountSuspended(RequestError):
    """The token is good, and its account may call nothing for now."""

    def __str__(self) -> str:
        return "This account is suspended"


class NoSuchRecord(RequestError, LookupError):
    """The store has no such account, plan or token."""

    def __init__(self, kind: str, id: str, hint: str = "") -> None:
        """`kind` is what it is called, as in "account"."""
        self.kind = kind
        self.id = id
        self.hint = hint
        super().__init__(kind, id, hint)

    def __str__(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        return f"there is no {self.kind} {self.id!r}{hint}"


class RecordExists(RequestError):
    """The store has it already."""

    def __init__(self, kind: str, id: str, problem: str = "exists already") -> None:
        self.kind = kind
        self.id = id
        self.problem = problem
        super().__init__(kind, id, problem)

    def __str__(self) -> str:
        return f"{self.kind} {self.id!r} {self.problem}; choose another id"


class RecordInUse(RequestError):
    """Others need it as it is."""

    def __init__(self, kind: str, id: str, reason: str) -> None:
        self.kind = kind
        self.id = id
        self.reason = reason
        super().__init__(kind, id, reason)

    def __str__(self) -> str:
        return f"{self.kind} {self.id!r} {self.reason}"


class LimitExceeded(RequestError):
    """A limit of the tenant's plan is reached; nothing ran."""

    def __init__(self, limit: str, retry_after_s: int) -> None:
        """`limit` is a field of `tenancy.plan.Quota` or `Plan`."""
        self.limit = limit
        self.retry_after_s = retry_after_s
        super().__init__(limit, retry_after_s)


class RateExceeded(LimitExceeded):
    """The tenant asks for too much at once of one model."""

    def __str__(self) -> str:
        reached = self.limit.replace("_", " ").replace(" per minute", " per min")
        return f"rate limiting: inference {reached} reached; retry after {self.retry_after_s} s"


class QuotaExceeded(LimitExceeded):
    """The tenant's neurons of this day are used up."""

    def __str__(self) -> str:
        return (
            "you have used up your daily allocation of neurons; "
            f"it is renewed in {self.retry_after_s} s, at midnight UTC"
        )


class ScriptRefused(RequestError):
    """What was uploaded cannot be a worker here."""

    def __init__(self, problem: str, *, path: str = "", line: int = 0, remedy: str = "") -> None:
        """`path` is of the tenant's file, empty for none."""
        self.problem = problem
        self.path = path
        self.line = line
        self.remedy = remedy
        super().__init__(problem)

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}: " if self.line else f"{self.path}: " if self.path else ""
        remedy = f". {self.remedy}" if self.remedy else ""
        return f"{where}{self.problem}{remedy}"


class NewestNotDeployed(RequestError):
    """A worker's secret cannot be changed at once: the newest version does not answer all requests."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        super().__init__(worker)

    def __str__(self) -> str:
        return (
            f"the newest version of {self.worker!r} is not deployed, and a changed secret would deploy "
            "it too; deploy it first, or change the secret with `versions secret put`"
        )


class DependenciesRefused(RequestError):
    """Packages that a worker asks for cannot be had here; the message says which, and what to do."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"dependencies: {problem}")


class RouteNotFound(RequestError):
    """No such path."""

    def __str__(self) -> str:
        return "No route for that URI"


class MethodNotAllowed(RequestError):
    """The path exists, with another method."""

    def __init__(self, method: str) -> None:
        self.method = method
        super().__init__(method)

    def __str__(self) -> str:
        return f"Method {self.method} not allowed for this URI"


class CapacityExceeded(TenantryError):
    """The queue is full."""

    def __init__(self, retry_after_s: int = 1) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(retry_after_s)

    def __str__(self) -> str:
        return "Capacity temporarily exceeded, please try again."


class NodeUnavailable(TenantryError):
    """No healthy node serves this model and phase."""

    def __init__(self, model: str) -> None:
        self.model = model
        super().__init__(model)

    def __str__(self) -> str:
        return f"no healthy node serves {self.model}; try again shortly"


class NodeLost(NodeUnavailable):
    """The node that ran the request is gone, or has said nothing for too long."""

    def __str__(self) -> str:
        return f"the node that ran the request for {self.model} is gone; try again"


class LedgerUnavailable(TenantryError):
    """Usage cannot be recorded now; what cannot be recorded does not run."""

    def __str__(self) -> str:
        return "usage cannot be recorded at the moment; try again shortly"


class StoreUnavailable(TenantryError):
    """The store does not answer, so that nothing is known of who calls."""

    def __init__(self, reason: str) -> None:
        """The reason is for whoever runs the store; clients are not told."""
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return f"the store is unavailable: {self.reason}"


class GenerationFailed(TenantryError):
    """A node failed a request that it had accepted."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)

    def __str__(self) -> str:
        return f"generation failed: {self.problem}"


class HandoffFailed(GenerationFailed):
    """A prompt's pages did not get from one node to the other."""

    def __str__(self) -> str:
        return f"hand-off failed: {self.problem}"


class ReaderTooSlow(GenerationFailed):
    """The request's own reader has fallen too far behind."""

    def __init__(self, num_unread: int) -> None:
        self.num_unread = num_unread
        super().__init__(f"its reader left {num_unread} tokens unread")
        # what a copy is made from: the base class has another parameter
        self.args = (num_unread,)


class CacheIntegrityError(GenerationFailed):
    """A cache page was not the request's own; nothing of it was used."""

    def __str__(self) -> str:
        return f"cache_integrity: {self.problem}"


class RequestTimeout(TenantryError, TimeoutError):
    """The request's own deadline passed."""

    def __str__(self) -> str:
        return "Request timeout"


class ConfigurationError(TenantryError):
    """The operator's configuration or state directory is unusable."""


class DependenciesMissing(ConfigurationError):
    """A set of packages was resolved elsewhere and is not installed on this machine."""

    def __init__(self, digest: str) -> None:
        self.digest = digest
        super().__init__(f"the packages {digest[:16]} are not installed on this machine")


class SecretKeyMissing(ConfigurationError):
    """A secret is encrypted with a key that this machine does not have."""

    def __init__(self, account: str, name: str, key_id: str, source: str) -> None:
        """`source` is where the machine's keys are."""
        self.account = account
        self.name = name
        self.key_id = key_id
        self.source = source
        super().__init__(account, name, key_id, source)

    def __str__(self) -> str:
        return (
            f"secret {self.name!r} of account {self.account!r} is encrypted with key {self.key_id}, "
            f"which is not in {self.source}; add that key there, or, if it is lost, delete the secret "
            f"and put it again"
        )


class SecretDamaged(ConfigurationError):
    """A secret does not open with its own key: what the store has was altered, or moved there."""

    def __init__(self, account: str, name: str, key_id: str) -> None:
        self.account = account
        self.name = name
        self.key_id = key_id
        super().__init__(account, name, key_id)

    def __str__(self) -> str:
        return (
            f"secret {self.name!r} of account {self.account!r} does not open with its key "
            f"{self.key_id}: it was altered in the store; restore it, or put it again"
        )


class CheckpointError(ConfigurationError):
    """A model directory is unusable."""

    def __init__(self, file: str, tensor: str | None, problem: str) -> None:
        self.file = file
        self.tensor = tensor
        self.problem = problem
        super().__init__(file, tensor, problem)

    def __str__(self) -> str:
        where = f"{self.file}: tensor {self.tensor}" if self.tensor else self.file
        return f"{where}: {self.problem}"


class DeploymentError(ConfigurationError):
    """A deployment's file is wrong."""

    def __init__(self, file: str, key: str, problem: str) -> None:
        """The key as in `nodes[1].address`, empty for the whole file."""
        self.file = file
        self.key = key
        self.problem = problem
        super().__init__(file, key, problem)

    def __str__(self) -> str:
        return ": ".join(filter(None, [self.file, self.key, self.problem]))


class ConversionError(ConfigurationError):
    """A checkpoint cannot be converted as asked."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(path, problem)

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class NotEnoughSpace(ConversionError):
    """The disk has no room for a conversion."""

    def __init__(self, path: str, needed_bytes: int | None, free_bytes: int | None) -> None:
        """None for both: the disk, or the quota on it, filled up while a file was written."""
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        super().__init__(path, "the disk is full")
        # what a copy is made from: the base class has other parameters
        self.args = (path, needed_bytes, free_bytes)

    def __str__(self) -> str:
        if self.needed_bytes is None or self.free_bytes is None:
            found = "the disk is full, or its quota is used up"
        else:
            needed, free = self.needed_bytes / 2**20, self.free_bytes / 2**20
            found = f"{needed:,.0f} MiB more are needed and {free:,.0f} MiB are free"
        return f"{self.path}: {found}; make room and run it again: finished files are kept"


class IncompatibleNode(ConfigurationError):
    """Edge and node cannot work together."""

    def __init__(self, address: str, problem: str) -> None:
        self.address = address
        self.problem = problem
        super().__init__(address, problem)

    def __str__(self) -> str:
        return f"node {self.address}: {self.problem}"
