"""mochi, in Go: the program that its module has for containers, which reads a file of settings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.bench.suite.peers.memory import InMemory
from headrace.bench.suite.peers.peer import LeftOutError
from headrace.bench.suite.peers.process import find

if TYPE_CHECKING:
    from headrace.model import Address

PROGRAM: Final = "mochi"

MODULE: Final = rb"mod\tgithub\.com/mochi-mqtt/server/v2\tv([\d.]+)"
"""In what Go writes into programs about themselves."""

CAPABILITIES: Final = {
    "maximum_client_writes_pending": 65_536,
    "maximum_inflight": 65_535,
    "maximum_clients": 2**63 - 1,
    "maximum_message_expiry_interval": 86_400,
    "maximum_session_expiry_interval": 2**32 - 1,
    "receive_maximum": 1024,
    "topic_alias_maximum": 65_535,
    "shared_sub_available": 1,
    "minimum_protocol_version": 3,
    "maximum_qos": 2,
    "retain_available": 1,
    "wildcard_sub_available": 1,
    "sub_id_available": 1,
}
"""The first two are other than its defaults; but where any is said, what is not said is 0."""


class Mochi(InMemory):
    """See `Peer`."""

    name = "mochi"
    install = (
        "go install github.com/mochi-mqtt/server/v2/cmd/docker@latest"
        " && mv ~/go/bin/docker ~/go/bin/mochi"
    )
    promised = "acknowledges from memory, before it delivers"

    def version(self) -> str:
        """As `Peer` says."""
        program = find(PROGRAM)
        match = re.search(MODULE, Path(program).read_bytes())
        if match is None:
            raise LeftOutError(f"{program} is not mochi's")
        return match[1].decode()

    def command(self, folder: Path, mqtt: Address) -> list[str]:
        """As `InMemory` says."""
        config = folder / "mochi.json"
        listener = {"type": "tcp", "id": "mqtt", "address": str(mqtt)}
        settings = {
            "listeners": [listener],
            "hooks": {"auth": {"allow_all": True}},
            "options": {"capabilities": CAPABILITIES},
        }
        config.write_text(json.dumps(settings))
        return [find(PROGRAM), "-config", str(config)]
