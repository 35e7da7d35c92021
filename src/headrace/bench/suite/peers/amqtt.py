"""aMQTT, in Python."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from headrace.bench.suite.peers.memory import InMemory
from headrace.bench.suite.peers.peer import Feature
from headrace.bench.suite.peers.process import find, said

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.model import Address

PYTHON: Final = "AMQTT_PYTHON"
"""The variable that names a Python that can import it."""

MODULE: Final = "amqtt.scripts.broker_script"

ANYBODY: Final = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}


def _program() -> list[str]:
    python = os.environ.get(PYTHON)
    return [find(python), "-m", MODULE] if python else [find("amqtt")]


class Amqtt(InMemory):
    """See `Peer`."""

    name = "amqtt"
    install = f"pip install amqtt, on PATH or in a venv whose Python {PYTHON} names"
    lacks = frozenset({Feature.SHARED, Feature.MQTT_5})
    promised = "acknowledges from memory, before it delivers"

    def version(self) -> str:
        """As `Peer` says."""
        return said([*_program(), "--version"], r"([\d.]+)")

    def command(self, folder: Path, mqtt: Address) -> list[str]:
        """As `InMemory` says."""
        listeners = {"default": {"type": "tcp", "bind": str(mqtt)}}
        config = folder / "amqtt.yaml"  # of which JSON is a part
        config.write_text(json.dumps({"listeners": listeners, "plugins": ANYBODY}))
        return [*_program(), "-c", str(config)]
