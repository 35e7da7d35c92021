"""The MQTT door: hands bytes and connection events to the switchboard. Decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import limits

if TYPE_CHECKING:
    from headrace.native import Switchboard
    from headrace.node.knock import Knocks
    from headrace.node.runner import Runner
    from headrace.ports import Clock, Link


class MqttDoor:
    """Numbers connections and feeds them to the switchboard."""

    __slots__ = ("_last", "clock", "knocks", "runner", "switchboard")

    def __init__(
        self, clock: Clock, switchboard: Switchboard, runner: Runner, knocks: Knocks
    ) -> None:
        self.clock = clock
        self.knocks = knocks
        self.switchboard = switchboard
        self.runner = runner
        self._last = 0

    def __call__(self, link: Link) -> MqttConnection:
        """Takes a new connection in."""
        self._last += 1
        connection = self._last
        self.runner.links[connection] = link
        self.switchboard.opened(connection, *self.clock.now())
        self.switchboard.writable(connection, limits.WRITE_CREDIT_BYTES)
        self.runner.wake()
        return MqttConnection(self, connection)


class MqttConnection:
    """One MQTT connection; its state is the switchboard's."""

    __slots__ = ("_connection", "_door")

    def __init__(self, door: MqttDoor, connection: int) -> None:
        self._door = door
        self._connection = connection

    def received(self, data: bytes) -> None:
        """Bytes came in."""
        door = self._door
        mono_ms, wall_ms = door.clock.now()
        door.switchboard.receive(self._connection, data, mono_ms, wall_ms)
        door.runner.wake()

    def ended(self) -> bool:
        """The client has left."""
        return False

    def writable(self, ready: bool) -> None:
        """The transport is full, or has room again."""
        door = self._door
        door.switchboard.writable(self._connection, limits.WRITE_CREDIT_BYTES if ready else 0)
        door.runner.wake()

    def closed(self) -> None:
        """The link is gone."""
        door = self._door
        del door.runner.links[self._connection]
        door.knocks.forget(self._connection)
        door.switchboard.closed(self._connection, *door.clock.now())
        door.runner.wake()
