"""`workerctl kv`."""

from __future__ import annotations

import click

from .kv_bulk import bulk
from .kv_key import key
from .kv_namespace import namespace


@click.group()
def kv() -> None:
    """Keep keys and values in KV namespaces, which workers read and write as env.BINDING."""


kv.add_command(namespace)
kv.add_command(key)
kv.add_command(bulk)
