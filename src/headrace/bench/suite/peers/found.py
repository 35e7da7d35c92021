"""All brokers that a suite knows, and which of them are here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.bench.suite.peers.aedes import Aedes
from headrace.bench.suite.peers.amqtt import Amqtt
from headrace.bench.suite.peers.headrace import Headrace
from headrace.bench.suite.peers.kafka import Kafka
from headrace.bench.suite.peers.mochi import Mochi
from headrace.bench.suite.peers.mosquitto import Mosquitto
from headrace.bench.suite.peers.nats import Nats
from headrace.bench.suite.peers.peer import LeftOutError, Mode
from headrace.bench.suite.peers.rabbitmq import RabbitMq
from headrace.bench.suite.peers.relay import Relay
from headrace.bench.suite.peers.rmqtt import Rmqtt
from headrace.bench.suite.peers.rumqttd import Rumqttd
from headrace.errors import InputError
from headrace.text import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.bench.suite.peers.peer import Peer

PEERS: Final[tuple[Peer, ...]] = (
    Headrace(),
    Mosquitto(),
    Nats(),
    RabbitMq(),
    Rmqtt(),
    Rumqttd(),
    Mochi(),
    Aedes(),
    Amqtt(),
    Kafka(),
)
"""In the order of tables."""

BASELINES: Final[tuple[Peer, ...]] = (Relay(),)
"""Servers that are no brokers, of workloads that name them."""

STARTS: Final = {"rabbitmq": 40.0, "kafka": 60.0}
"""Seconds that these take to start, and to become as fast as they get."""

START_SECONDS: Final = 2.0
"""That the others take."""

QUICK: Final = ("headrace", "mosquitto")
"""Whom `--quick` measures, unless others are named: a broker more takes minutes more."""


@dataclass(frozen=True, slots=True)
class Found:
    """Who is here, and who is not.

    Attributes:
        peers: those that can be started.
        versions: of them, by name.
        left_out: by name of the others, what is missing and what installs it.
    """

    peers: Sequence[Peer]
    versions: dict[str, str]
    left_out: dict[str, str]

    def described(self) -> dict[str, Any]:
        """`results.Result.peers`."""
        return {
            peer.name: {
                "version": self.versions[peer.name],
                "install": peer.install,
                "promises": {
                    str(door): {str(mode): peer.promise(door, mode) for mode in Mode}
                    for door in sorted(peer.doors)
                },
            }
            for peer in self.peers
        }


def find(peers: Sequence[Peer]) -> Found:
    """Looks for each."""
    here, versions, left_out = [], {}, {}
    for peer in peers:
        try:
            versions[peer.name] = peer.version()
        except LeftOutError as missing:
            left_out[peer.name] = f"{missing}; {peer.install}" if peer.install else str(missing)
        else:
            here.append(peer)
    return Found(here, versions, left_out)


def named(peers: Sequence[Peer], names: Sequence[str]) -> list[Peer]:
    """Those of these names, in the order of `peers`; all, where there are none.

    Raises:
        InputError: one of the names is nobody's.
    """
    known = [peer.name for peer in peers]
    for name in names:
        if name not in known:
            raise InputError(f"no broker is called {name}: {nearest(name, known)}")
    return [peer for peer in peers if not names or peer.name in names]
