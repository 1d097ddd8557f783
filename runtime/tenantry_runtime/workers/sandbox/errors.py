"""What the sandbox refuses or fails at.

ConfigurationError
├── InterpreterUnusable      the isolates' interpreter lacks what an isolate needs
├── SandboxTooWeak           this machine confines less than the stated floor
└── TemplateFailed           a template process did not start
SpawnFailed                  a template did not give an isolate
"""

from __future__ import annotations

from tenantry_runtime.errors import ConfigurationError, TenantryError

from .level import Level


class InterpreterUnusable(ConfigurationError):
    """The isolates' interpreter cannot run isolates."""

    def __init__(self, executable: str, problem: str) -> None:
        self.executable = executable
        self.problem = problem
        super().__init__(executable, problem)

    def __str__(self) -> str:
        return f"the interpreter of isolates, {self.executable!r}: {self.problem}"


class SandboxTooWeak(ConfigurationError):
    """What this machine can confine is below the floor."""

    def __init__(self, level: Level, floor: Level, missing: tuple[str, ...]) -> None:
        """`missing`: a layer and why it is not there, each."""
        self.level = level
        self.floor = floor
        self.missing = missing
        super().__init__(level, floor, missing)

    def __str__(self) -> str:
        missing = "; ".join(self.missing)
        return (
            f"the sandbox of workers reaches level {self.level.value!r} on this machine, below the "
            f"floor {self.floor.value!r}: {missing}. `workerctl sandbox probe` says more; on a "
            f"developer's own machine, with nobody else's code, --unsafe-no-sandbox runs without"
        )


class TemplateFailed(ConfigurationError):
    """A template process did not come up."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)

    def __str__(self) -> str:
        return f"the template of isolates did not start: {self.problem}"


class SpawnFailed(TenantryError):
    """No isolate: it could not be confined, or its template has ended."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)

    def __str__(self) -> str:
        return f"no isolate could be started: {self.problem}"
