"""aedes: a library for Node.js, in the least program that serves MQTT by it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.bench.suite.peers.memory import InMemory
from headrace.bench.suite.peers.peer import Feature, LeftOutError
from headrace.bench.suite.peers.process import find

if TYPE_CHECKING:
    from headrace.model import Address

USUAL_MODULES: Final = ("/usr/lib/node_modules", "/usr/local/lib/node_modules", "~/node_modules")

PROGRAM: Final = """
import { createServer } from 'node:net'
const [module, host, port] = process.argv.slice(1)
const { Aedes } = await import(module)
const broker = await Aedes.createBroker()
createServer({ noDelay: true }, broker.handle).listen(port, host, 4096)
"""
"""Of version 1; those before had no `createBroker`. Node.js alone has Nagle's algorithm on."""


def _module() -> Path:
    """Where the module is: in NODE_PATH, as Node.js itself looks, or where npm puts it."""
    places = [*os.environ.get("NODE_PATH", "").split(os.pathsep), *USUAL_MODULES]
    for place in filter(None, places):
        folder = Path(place).expanduser() / "aedes"
        if (folder / "package.json").exists():
            return folder
    raise LeftOutError("there is no module aedes in NODE_PATH")


class Aedes(InMemory):
    """See `Peer`."""

    name = "aedes"
    install = "npm install --prefix FOLDER aedes, and FOLDER/node_modules in NODE_PATH"
    lacks = frozenset({Feature.SHARED, Feature.MQTT_5})
    promised = "acknowledges when it has written to its subscribers' connections"

    def version(self) -> str:
        """As `Peer` says."""
        find("node")
        return str(json.loads((_module() / "package.json").read_text())["version"])

    def command(self, _folder: Path, mqtt: Address) -> list[str]:
        """As `InMemory` says."""
        node, module = find("node"), (_module() / "aedes.js").absolute().as_uri()
        return [node, "--input-type=module", "--eval", PROGRAM, module, mqtt.host, str(mqtt.port)]
