"""Bounds of the MQTT door: packets, sessions, retained messages, what waits for clients."""

from typing import Final

from headrace.limits.units import DAY_MS, KIB, MIB

PACKET_BYTES_MAX: Final = MIB + 64 * KIB
"""MQTT packet: a payload of 1 MiB with its topic and properties (EMQX and mosquitto 2.1 hold 1
and 2 MB)."""

MESSAGE_BYTES_MAX: Final = PACKET_BYTES_MAX + 65 * KIB
"""Default of `max.message.bytes`: what a packet of `PACKET_BYTES_MAX` makes, its topic as the key
and as a header. Kafka's is 1,048,588, which would refuse payloads of 1 MiB."""

PACKET_BYTES_CEILING: Final = 268_435_460
"""MQTT 5.0 2.1.4: the largest remaining length and the five bytes before it."""

RECEIVE_MAXIMUM: Final = 1024
"""Publishes above QoS 0 whose exchange with a client may not be over (3.2.2.3.3). A commit takes
about 2 ms, so 1,024 let one publisher reach 500,000 a second."""

TOPIC_ALIAS_MAXIMUM: Final = 32
"""Topic aliases that a client may set on a connection (3.2.2.3.8): a device's own topics and some
(RMQTT's default). The compiled module bounds their bytes at 128 KiB."""

SESSION_EXPIRY_MS_MAX: Final = 14 * DAY_MS
"""Longest time for which a session waits for its client (3.1.2.11.2): a client that is away for a
fortnight has gone for good (FlashMQ's default)."""

SESSION_EXPIRY_MS_CEILING: Final = 0xFFFF_FFFF * 1000
"""For ever, as the protocol says it (3.1.2.11.2)."""

SESSION_IN_FLIGHT_MAX: Final = 1024
"""Messages in flight to one client, however large its Receive Maximum: at a round trip of a
millisecond it still is a million messages a second."""

SESSION_MESSAGES_MAX: Final = 1000
"""Waiting for one client while it is away (mosquitto, EMQX, HiveMQ and VerneMQ hold 1,000). One
that is there is held to bytes alone: a commit releases thousands of messages at once."""

SESSION_BYTES_MAX: Final = 16 * MIB
"""Waiting for one client, with what is in flight and may have to be sent again."""

QUEUED_BYTES_MAX: Final = 512 * MIB
"""All that waits for clients, each message counted once, and its place in the queue of each: what a
node of 2 GB can spare."""

SESSIONS_MAX: Final = 1_000_000
"""MQTT sessions, of clients that are away too: as many as there may be connections. An empty one
takes less than a kilobyte."""

SESSION_SUBSCRIPTIONS_MAX: Final = 65_536
"""Subscriptions of one client: more than a dashboard for a whole fleet needs, and about 10 MB. One
to a stream counts as one for each partition, in which it holds a position."""

SUBSCRIPTIONS_MAX: Final = 10_000_000
"""Subscriptions of all clients together, at some 200 bytes each."""

STREAM_READS_MAX: Final = 64
"""Pieces of streams that MQTT clients wait for, of the disk or of a thread that decompresses: what
keeps a disk busy, and Kafka's clients wait behind no more."""

STREAM_LAG_STEPS_MAX: Final = 100_000
"""Subscriptions to streams, and positions of theirs, that a scrape looks at to tell how far readers
are behind: some 5 ms of the loop."""

STREAM_READERS_TOLD_MAX: Final = 100
"""Clients whose loss of a subscription is a line of the log when their stream is deleted; others
are counted in one more."""

STREAM_PIECE_BYTES_MAX: Final = 2 * MIB
"""Of a piece, where a batch is large or decompresses to much: clients close a batch at 1 MiB before
its compression. What is behind it is read, and decompressed, again."""

STREAM_RECORD_BYTES_MAX: Final = 16 * MIB
"""Of a record of a stream that is sent to MQTT clients, by default the most that any of them has
room for (`OUTBOUND_BYTES_MAX`). A small batch may decompress to a record of 128 MiB."""

STREAM_RECORD_HEADERS_MAX: Final = 65_535
"""Of such a record too, of which an empty header takes two bytes. The compiled module's own."""

UNRELEASED_MAX: Final = 10_000_000
"""Packet ids at QoS 2 of all clients together that these have not released, at some 30 bytes each:
ten thousand publishers with a window full of them, or 600 that hold all that one may."""

SYS_INTERVAL_MS: Final = 10_000
"""Between two rounds of what is published below `$SYS/broker`, mosquitto's own (`sys_interval`)."""

GROUP_MESSAGES_MAX: Final = 10_000
"""Waiting for one group of a shared subscription while no member can take them: what ten sessions
may hold."""

GROUP_BYTES_MAX: Final = 64 * MIB
"""Bytes of those."""

RETAINED_MESSAGES_MAX: Final = 1_000_000
"""Retained messages of a node: ten for each device of a large fleet."""

RETAINED_BYTES_MAX: Final = 256 * MIB
"""Bytes of those, with some 160 that each costs beside: a million of 100 bytes fit."""

KEEP_ALIVE_SECONDS_MAX: Final = 65_535
"""Longest keep-alive of a client, the protocol's own (3.1.2.10)."""

RESPONSE_INFORMATION_LENGTH_MAX: Final = 1024
"""The beginning of a topic, told to clients that ask (3.2.2.3.15)."""

CONNECT_TIMEOUT_MS: Final = 10_000
"""Time from accept to a whole CONNECT (3.1.4 asks for "a reasonable time")."""

OUTBOUND_BYTES_MAX: Final = 16 * MIB
"""Waiting for one connection; beyond it publishers are held, then messages are dropped."""

BUFFERED_BYTES_MAX: Final = 512 * MIB
"""Held by all MQTT connections together, of what they have not read and of packets that are not
whole: a thousand of them at their own bound would be 16 GB. The latter may hold a quarter of it, on
top of it where need be, and more while a quarter stays free."""

STALL_MS_MAX: Final = 250
"""Time in which a full subscriber must take a 32nd of its bound to hold its publishers longer; then
messages for it are dropped. A client on a busy machine may not run for 100 ms."""

UNDURABLE_BYTES_MAX: Final = 64 * MIB
"""Accepted by the data plane and not yet durable; beyond it publishers are read no further."""
