"""What tenants do with `workerctl`: deploy workers to a control plane, and look after them.

All of it speaks Cloudflare's v4 paths over HTTP, and none of it needs the runtime.
"""

from __future__ import annotations

from .commands.completion import completion
from .commands.delete import delete
from .commands.deploy import deploy
from .commands.deployments import deployments
from .commands.init import init
from .commands.kv import kv
from .commands.login import login, logout, whoami
from .commands.logs import logs
from .commands.rollback import rollback
from .commands.secret import secret
from .commands.tail import tail
from .commands.versions import versions

COMMANDS = (
    completion,
    delete,
    deploy,
    deployments,
    init,
    kv,
    login,
    logout,
    logs,
    rollback,
    secret,
    tail,
    versions,
    whoami,
)
"""Of `workerctl`."""
