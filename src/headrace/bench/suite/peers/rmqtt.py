"""RMQTT, in Rust."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from headrace.adapters.children import unused
from headrace.bench.suite.peers.memory import InMemory
from headrace.bench.suite.peers.process import find, said

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.model import Address

PROGRAM: Final = "rmqttd"

CONFIG: Final = """node.id = 1
node.busy.check_enable = false
rpc.server_addr = "{rpc}"
log.to = "console"
log.level = "warn"
plugins.dir = {plugins}
plugins.default_startups = ["rmqtt-shared-subscription"]
plugins.disabled_default_startups = ["rmqtt-http-api"]

[listener.tcp.external]
addr = "{mqtt}"
allow_anonymous = true
nodelay = true
backlog = 4096
max_handshaking_limit = 20000
max_packet_size = "8M"
max_inflight = 1000
max_mqueue_len = 1000000
"""


class Rmqtt(InMemory):
    """See `Peer`."""

    name = "rmqtt"
    install = "cargo install rmqttd"
    promised = "acknowledges from its subscribers' queues in memory"

    def version(self) -> str:
        """As `Peer` says."""
        return said([find(PROGRAM), "--version"], r"([\d.]+)")

    def command(self, folder: Path, mqtt: Address) -> list[str]:
        """As `InMemory` says."""
        (rpc,) = unused(1)
        plugins = folder / "plugins"
        plugins.mkdir()
        (plugins / "rmqtt-acl.toml").write_text('rules = [["allow", "all"]]\n')
        config = folder / "rmqtt.toml"
        config.write_text(CONFIG.format(mqtt=mqtt, rpc=rpc, plugins=json.dumps(str(plugins))))
        return [find(PROGRAM), "--config", str(config)]
