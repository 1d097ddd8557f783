"""A node process that reads a real configuration, and says that it has loaded what that names."""

from __future__ import annotations

import sys

import msgspec

from support.scripted_node import Script, ScriptedLoop
from tenantry_runtime.engine.config import NodeConfig
from tenantry_runtime.pool.__main__ import main
from tenantry_runtime.pool.messages import MemberDescription
from tenantry_runtime.pool.page_port import PagePort

BUILD = "support.configured_node:build_configured_loop"


class ConfiguredLoop(ScriptedLoop):
    """Computes nothing, for all members of a configuration."""

    def __init__(self, config: NodeConfig) -> None:
        super().__init__(Script(models=tuple(model.id for model in config.models), token_ids=[0]))
        self._config = config

    def describe(self) -> tuple[MemberDescription, ...]:
        kinds = {(each.model, each.phase): each for each in super().describe()}
        return tuple(
            msgspec.structs.replace(
                kinds[model.id, phase], cache_format=self._config.cache_of(model, phase)
            )
            for model in self._config.models
            for phase in model.phases
        )


def build_configured_loop(config: bytes, _port: PagePort) -> ConfiguredLoop:
    return ConfiguredLoop(msgspec.json.decode(config, type=NodeConfig))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], build=BUILD))
