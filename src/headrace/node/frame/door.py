"""What all connections of the frame door share.

Owns the counters, and the memory that frames hold that are not whole, that wait for the disk, or
that wait for their consumer. Must not know what a connection does.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headrace import limits
from headrace.kernel.holdings import Beginnings, Holdings
from headrace.node.frame.connection import FrameConnection
from headrace.node.turns import Turns
from headrace.ports import Sample

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from headrace.node.access import Gate
    from headrace.node.broker import Broker
    from headrace.node.frame.consume import Consumer
    from headrace.node.frame.produce import Producer
    from headrace.ports import Link
    from headrace.wire.frame import Refusal


@dataclass(frozen=True, slots=True)
class FrameSettings:
    """The table `[frame]` of the configuration, as far as the door needs it.

    Attributes:
        connect_ms: from accept to a whole first line.
        idle_ms: how long a producer may complete no frame, and a client take nothing.
        heartbeat_ms: silence after which a consumer is told where it stands.
        undurable_bytes: `limits.undurable_bytes`.
    """

    connect_ms: int = limits.FRAME_CONNECT_MS
    idle_ms: int = limits.FRAME_IDLE_MS
    heartbeat_ms: int = limits.FRAME_HEARTBEAT_MS
    undurable_bytes: int = limits.UNDURABLE_BYTES_MAX


class FrameDoor:
    """Takes connections in (`ports.Door`).

    Attributes:
        broker: the node's streams.
        gate: who is let in.
        settings: the node's settings.
        decoders: threads that decompress what goes out.
        held_bytes: of frames that are not whole, and of records that wait for their consumer.
        undurable_bytes: of batches that wait for the disk, whether or not a client waits for them.
        parts: of frames that are not whole.
        turns: of consumers, to read and to send.
        unread: frames that transports hold for consumers.
        waiting: called once some of these are durable.
        producers, consumers: connections that have said so, open now.
        received, received_bytes: frames taken, and what was read for them.
        sent, sent_bytes: frames given to consumers.
        refused: connections that the door ended, by reason.
    """

    def __init__(self, broker: Broker, settings: FrameSettings, gate: Gate) -> None:
        self.broker = broker
        self.gate = gate
        self.settings = settings
        self.decoders = ThreadPoolExecutor(limits.CHECKERS, "frames")
        self.held_bytes = 0
        self.undurable_bytes = 0
        self.parts: Beginnings[Producer] = Beginnings(
            limits.FRAME_PARTS_BYTES_MAX, limits.FRAME_PART_BYTES
        )
        self.turns = Turns()
        self.unread: Holdings[Consumer] = Holdings(limits.FRAME_BUFFERED_BYTES_MAX)
        self.waiting: set[Callable[[], None]] = set()
        self.producers = self.consumers = 0
        self.received = self.received_bytes = 0
        self.sent = self.sent_bytes = 0
        self.refused: Counter[str] = Counter()
        self._turn = 0

    def configure(self, settings: FrameSettings) -> None:
        """Other settings hold from now on."""
        self.settings = settings

    def __call__(self, link: Link) -> FrameConnection:
        """Takes a new connection in."""
        return FrameConnection(self, link)

    def turn(self) -> int:
        """Where the frames without a key of one more producer begin: each at another partition."""
        self._turn = (self._turn + 1) % limits.STREAM_PARTITIONS_MAX
        return self._turn

    @property
    def congested(self) -> bool:
        """Whether too much waits for the disk to take anything more."""
        return self.undurable_bytes >= self.settings.undurable_bytes

    @property
    def crowded(self) -> bool:
        """Whether connections hold more than they may together."""
        return self.held_bytes > limits.FRAME_BUFFERED_BYTES_MAX

    def appended(self, size_bytes: int, future: asyncio.Future[int]) -> None:
        """Counts a batch until it is durable or lost: its client may have left by then."""
        self.undurable_bytes += size_bytes
        future.add_done_callback(partial(self._ended, size_bytes))

    def _ended(self, size_bytes: int, future: asyncio.Future[int]) -> None:
        future.exception()  # maybe nobody waits for it any more
        self.undurable_bytes -= size_bytes
        if self.waiting and not self.congested:
            waiting, self.waiting = self.waiting, set()
            for go_on in waiting:
                go_on()

    def refuse(self, refusal: Refusal) -> None:
        """Counts a connection that ends."""
        self.refused[refusal.reason] += 1

    def samples(self) -> Iterator[Sample]:
        """Counters and gauges of the door."""
        yield Sample("frame_producers", self.producers, "Connections that produce.")
        yield Sample("frame_consumers", self.consumers, "Connections that consume.")
        yield Sample("frame_received_total", self.received, "Frames taken from producers.")
        yield Sample(
            "frame_received_bytes_total",
            self.received_bytes,
            "Bytes read from producers.",
        )
        yield Sample("frame_sent_total", self.sent, "Frames sent to consumers.")
        yield Sample("frame_sent_bytes_total", self.sent_bytes, "Bytes sent to consumers.")
        yield Sample(
            "frame_held_bytes",
            self.held_bytes,
            "Bytes of frames that are not whole, and of records that wait for their consumer.",
        )
        yield Sample(
            "frame_unread_bytes",
            self.unread.total_bytes,
            "Bytes of frames to consumers that do not read them as fast as they come.",
        )
        yield Sample(
            "frame_undurable_bytes",
            self.undurable_bytes,
            "Bytes of batches of frames that wait for the disk.",
        )
        for reason, count in self.refused.items():
            why = (("reason", reason),)
            yield Sample(
                "frame_refused_total", count, "Connections that the frame door ended.", why
            )
