"""Bounds of the frame door: lines, frames under way, time."""

from typing import Final

from headrace.limits.units import KIB, MIB

BATCH_HEADER_BYTES: Final = 61
"""Of a record batch v2 before its records: a frame is at most `max.message.bytes` without it, since
what is longer than its record in a frame is shorter in a batch."""

FRAME_LINE_BYTES_MAX: Final = 8 * KIB
"""First line of a client: stream, user and password at their longest, with every character written
as `\\uXXXX`."""

FRAME_TEXT_BYTES_MAX: Final = 1024
"""Text of an ending: one line, for a client that has a buffer of fixed size."""

FRAME_CONNECT_MS: Final = 10_000
"""From accept to a whole first line (setting `frame.connect_timeout`), as for CONNECT of MQTT."""

FRAME_IDLE_MS: Final = 600_000
"""How long a producer may complete no frame, and a client read nothing (setting
`frame.idle_timeout`): as long as a Kafka connection may be silent."""

FRAME_HEARTBEAT_MS: Final = 10_000
"""Silence after which a consumer is told where it stands (setting `frame.heartbeat_interval`): who
hears nothing three times as long may take the node for dead."""

FRAME_IN_FLIGHT_BYTES_MAX: Final = 4 * MIB
"""Batches of one producer that wait for the disk; beyond it the connection is read no further. A
commit takes about 2 ms, so one may reach 2 GB/s, and `UNDURABLE_BYTES_MAX` is enough for 16."""

FRAME_BUFFERED_BYTES_MAX: Final = 256 * MIB
"""Frames of all connections that are not whole, and records that wait for their consumer: as for
requests of Kafka. Beyond it consumers keep nothing that they have no room for: it is read again for
them. What they leave unread in transports has a bound of the same size; who has read nothing for
longest is ended."""

FRAME_PARTS_BYTES_MAX: Final = FRAME_BUFFERED_BYTES_MAX * 3 // 4
"""Of those, frames that are not whole, and a quarter as much of small ones where large ones hold it
(`kernel/holdings.py`): beyond it the oldest is ended, and consumers have some room in any case."""

FRAME_PART_BYTES: Final = 64 * KIB
"""What a producer may hold of a frame that is not whole and counts as little: it gives way only to
others that hold little."""

FRAME_READ_BYTES: Final = 256 * KIB
"""Of the log, read at a time for one consumer: four times what its transport takes."""
