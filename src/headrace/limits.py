"""Every bound of a node's Python side, with its reason and its source.

Owns numbers. Where a bound is a setting, the number here is its default and the setting's range
stands beside it in `headrace.config`; those of what runs beside a node are in `job_limits`. Names
carry kind, unit and bound. Relations between bounds are asserted at the end, so that a careless
change stops the import and not a running node.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
DAY_MS: Final = 86_400_000
INT64_MAX: Final = 2**63 - 1

# --- settings -----------------------------------------------------------------------------------

CONFIG_BYTES_MAX: Final = MIB
"""A file of settings: a thousand streams take a tenth of it; a device or a log is none."""

# --- streams ------------------------------------------------------------------------------------

STREAM_NAME_LENGTH_MAX: Final = 249
"""Kafka's limit: a partition folder `name-N` had to fit 255 bytes (`Topic.MAX_NAME_LENGTH`)."""

STREAM_PARTITIONS_MAX: Final = 1024
"""Partitions of one stream. Each holds open files and index memory; no stream that one node
serves gains from more."""

STREAM_FILTERS_MAX: Final = 256
"""Topic filters of one stream; each is an entry of the matcher that every publish walks."""

STREAMS_MAX: Final = 1000
"""Streams of one node (setting `limits.streams`): clients may create streams, so it is bounded."""

PARTITIONS_MAX: Final = 2000
"""Partitions of the streams of users on one node (setting `limits.partitions`): with
`PARTITION_DESCRIPTORS` each they stay within half of the usual hard limit of 20,000 descriptors."""

MESSAGE_BYTES_CEILING: Final = 64 * MIB
"""Largest `max.message.bytes`: a batch is one allocation and one journal entry or note."""

# --- MQTT ---------------------------------------------------------------------------------------

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
"""Subscriptions of one client: more than a dashboard for a whole fleet needs, and about 10 MB."""

SUBSCRIPTIONS_MAX: Final = 10_000_000
"""Subscriptions of all clients together, at some 200 bytes each."""

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
whole: a thousand of them at their own bound would be 16 GB."""

STALL_MS_MAX: Final = 250
"""Time in which a full subscriber must take a 32nd of its bound to hold its publishers longer; then
messages for it are dropped. A client on a busy machine may not run for 100 ms."""

UNDURABLE_BYTES_MAX: Final = 64 * MIB
"""Accepted by the data plane and not yet durable; beyond it publishers are read no further."""

# --- Kafka --------------------------------------------------------------------------------------

KAFKA_REQUEST_BYTES_MAX: Final = 72 * MIB
"""One request: the largest batch that a stream may allow (`MESSAGE_BYTES_CEILING`) and the
batches of other partitions beside it. Kafka's own bound is 100 MiB (`socket.request.max.bytes`)."""

KAFKA_RESPONSE_BYTES_MAX: Final = 256 * MIB
"""One response, as a client takes it: far above any fetch it asks for, so only garbage meets it."""

KAFKA_BUFFERED_BYTES_MAX: Final = 256 * MIB
"""Requests of all connections together, unfinished or in work: clients that begin large requests
and stall cost no more than this. A connection that has work begins nothing new beyond it; one that
only holds a part of a request is closed."""

KAFKA_REQUEST_ELEMENTS_MAX: Final = 100_000
"""Array elements of one request, at all depths: each becomes a Python object, and a request that
names every partition of a node (`PARTITIONS_MAX`) needs a few thousand."""

KAFKA_ELEMENT_BYTES: Final = 192
"""What an element of a request counts to `KAFKA_BUFFERED_BYTES_MAX` while the request waits or is
in work: a topic without a name takes 2 bytes on the wire and 48 in memory, one to be created 16 and
192. A hundred thousand of them sent 64 times would be a gigabyte."""

KAFKA_RESPONSE_ELEMENTS_MAX: Final = 10_000_000
"""Array elements of one response: metadata of a million partitions with three replicas each."""

KAFKA_PIPELINE_MAX: Final = 64
"""Requests of one connection in work; beyond it the connection is read no further. Kafka's
clients keep 5 in flight; librdkafka without idempotence has no bound of its own."""

KAFKA_FETCH_BYTES_MAX: Final = 2 * MIB
"""Records of one fetch response, whatever a client asks for. Reading and sending it takes the event
loop some 5 ms: with Kafka's own bound of 55 MiB (`fetch.max.bytes` of the broker) one reader held
everyone up for 190 ms at a time, read half as fast, and one that stopped reading held all of it."""

KAFKA_FETCH_READS_MAX: Final = 16
"""Reads of one fetch that wait for the disk together: four for each thread that reads, so that none
of them waits for the event loop, and so few that a fetch of every partition holds up no other."""

KAFKA_IDLE_MS: Final = 600_000
"""How long a Kafka connection may send nothing, Kafka's own (`connections.max.idle.ms`)."""

KAFKA_FETCH_WAIT_MS_MAX: Final = 300_000
"""Longest wait of a fetch for records; clients ask for 500 ms."""

KAFKA_THROTTLE_MS_MAX: Final = 30_000
"""Longest time for which a connection beyond its quota is not read: as long as Kafka's clients wait
for a response (`request.timeout.ms`), so that none takes the node for dead."""

KAFKA_QUOTA_BUCKETS_MAX: Final = 100_000
"""Users and client ids whose use of quotas is known, at some 300 bytes each."""

CHECKED_AT_ONCE_BYTES_MAX: Final = 64 * KIB
"""Batch, and what it decompresses to, that the event loop checks by itself, in some 0.1 ms. Others
are checked beside it."""

DECOMPRESSED_BYTES_MAX: Final = 128 * MIB
"""To which one batch may decompress: clients close it by its size before, 1 MiB unless configured,
and no small batch may claim the memory of a node. The compiled module's own bound."""

CHECKERS: Final = 2
"""Batches checked at a time beside the loop, each of which may take `DECOMPRESSED_BYTES_MAX`."""

OFFSETS_PARTITIONS: Final = 16
"""Partitions of `__offsets`. A group lives in the one that its name hashes to, so the number
never changes; 16 let the groups of a node spread over a cluster later."""

RETAINED_PARTITIONS: Final = 8
"""Partitions of `__retained`. A topic lives in the one that it hashes to, so the number never
changes; each is read and kept as a whole, 35 MB of a million messages."""

RETAINED_SEGMENT_BYTES: Final = 16 * MIB
"""Of `__retained`. What is not compacted yet is its newest segments and about as much as is
retained: 128 MiB in all where few topics change often."""

RETAINED_PAGE_NAMES: Final = 5_000
"""Topics that the event loop looks at in one go while it keeps what is retained: about 2 ms."""

SESSION_PARTITIONS: Final = 16
"""Partitions of `__mqtt`. A session lives in the one that its client id hashes to, so the number
never changes; 16 let the sessions of a node spread over a cluster later, and cost a commit round
little where many clients write in it."""

SESSION_CHECKPOINT_BYTES: Final = 4 * MIB
"""A partition of `__mqtt` is left alone while it is shorter: a start reads all 16 in well under a
second."""

SESSION_READ_BYTES: Final = 4 * MIB
"""Of `__mqtt`, read at a time while a node starts: HTTP is answered between two reads."""

INTERNAL_PARTITIONS: Final = OFFSETS_PARTITIONS + 1 + RETAINED_PARTITIONS + SESSION_PARTITIONS
"""Of the node's own streams: `__offsets`, `__producers`, `__retained`, `__mqtt`. They are made when
first needed, and have their place whatever users have made before."""

OFFSETS_MAX: Final = 1_000_000
"""Committed offsets of all groups together, at about 300 bytes each: clients choose group names,
so it is bounded. Beyond it a commit for a new partition is refused (POLICY_VIOLATION)."""

GROUP_ID_BYTES_MAX: Final = 255
"""Length of a group's name, and of what its members are (`consumer`). The protocol allows 32 KiB,
which nobody means."""

GROUPS_MAX: Final = 10_000
"""Consumer groups with members, or that had some not long ago: a client may name one with each
request. Groups that only keep offsets are bounded by `OFFSETS_MAX`."""

GROUP_SIZE_MAX: Final = 1_000
"""Members of one group (setting `kafka.group_max_size`, Kafka's `group.max.size`): each generation
tells all of them to one of them, and no stream has more than `STREAM_PARTITIONS_MAX` partitions."""

GROUP_RECORD_BYTES_MAX: Final = MIB
"""What the members of one group say of themselves, and what they are assigned: it is one record of
`__offsets`, which takes `MESSAGE_BYTES_MAX`. A thousand members with a topic each take 300 KB."""

GROUP_HELD_BYTES_MAX: Final = 4 * MIB
"""Members of one group in memory, with all that they say: four ways to share out, where all of them
say as much as a record takes."""

GROUP_PROTOCOLS_MAX: Final = 100
"""Ways to share out that one member may know: clients know one to four, and each is counted."""

GROUPS_BYTES_MAX: Final = 256 * MIB
"""Members of all groups in memory, with what they say and are assigned: a hundred thousand of them
with two ways to share out and ten topics each."""

GROUP_INITIAL_DELAY_MS: Final = 300
"""How long the first generation of a group waits for more members (setting
`kafka.group_initial_rebalance_delay`). Kafka waits 3 s, as for consumers that start by the dozen;
one that is alone, as most are, has its partitions ten times as soon."""

GROUP_SESSION_MS_MIN: Final = 6_000
"""Shortest session timeout of a member, Kafka's own (`group.min.session.timeout.ms`)."""

GROUP_SESSION_MS_MAX: Final = 1_800_000
"""Longest session timeout of a member, Kafka's own (`group.max.session.timeout.ms`)."""

OFFSETS_RETENTION_MS: Final = 7 * DAY_MS
"""How long committed offsets outlive the last member of their group, Kafka's own
(`offsets.retention.minutes`)."""

OFFSETS_CHECK_MS: Final = 600_000
"""How often offsets are looked at that may have been kept long enough, Kafka's own
(`offsets.retention.check.interval.ms`)."""

OFFSETS_CHECKED_AT_ONCE: Final = 5_000
"""Of those, in one go of the event loop: some 2 ms."""

GROUP_LAGS_MAX: Final = 10_000
"""Partitions of groups whose lag a scrape shows: about 1 MB of text and 20 ms."""

OFFSET_METADATA_BYTES_MAX: Final = 4096
"""Text that a client may keep beside a committed offset (`offset.metadata.max.bytes`)."""

PRODUCER_EXPIRY_MS: Final = 24 * 3_600_000
"""Silence after which an idempotent producer is forgotten, Kafka's default
(`producer.id.expiration.ms`)."""

PRODUCER_ID_BLOCK: Final = 1000
"""Producer ids that one durable record claims, as Kafka claims them (`ProducerIdsBlock`)."""

# --- sockets ------------------------------------------------------------------------------------

CONNECTIONS_MAX: Final = 1_000_000
"""Connections of the MQTT and Kafka doors together (setting `limits.connections`); what the
descriptors leave is usually less and is printed at start."""

LISTEN_BACKLOG: Final = 4096
"""Accept queue. 100 entries turn a reconnect storm into SYN retries of a second each; the kernel
caps it at `net.core.somaxconn`, whose default is 4,096."""

ACCEPTS_AT_ONCE: Final = 64
"""Connections accepted in one loop iteration, about 1 ms of work: in a storm of connects, those who
are connected are served in between."""

ACCEPT_PAUSE_SECONDS: Final = 0.1
"""How long nothing is accepted after an accept has failed, as for want of descriptors."""

USER_NAME_BYTES_MAX: Final = 256
"""Name of a user: as long as a client id that every broker takes, and some."""

PASSWORD_BYTES_MAX: Final = 1024
"""A password, or a token in its place."""

USERS_BYTES_MAX: Final = 64 * MIB
"""File of users, of some 900 bytes each: beyond that they belong into a directory service."""

PASSWORD_THREADS: Final = 2
"""Threads that check passwords (setting `access.password_threads`): each takes 19 MiB and 15 ms of
a core for one, so two let in about a hundred unknown clients a second."""

PASSWORD_QUEUE: Final = 1000
"""Passwords that wait for them (setting `access.password_queue`): what two threads do within the
time that a client waits for CONNACK."""

PASSWORD_CACHE_MS: Final = 600_000
"""How long a password that was checked is known (setting `access.password_cache`): a fleet that
reconnects after a restart of its network is let in at once."""

VERDICTS_MAX: Final = 100_000
"""Passwords that are known, at some 250 bytes each."""

AUTHENTICATION_WAIT_MS_MAX: Final = 60_000
"""Longest wait of an address that keeps failing: 1,440 guesses a day."""

ADDRESSES_MAX: Final = 100_000
"""Addresses of which connects and connections are known, at some 300 bytes each; beyond it the one
seen longest ago is forgotten."""

HANDSHAKE_MS: Final = 10_000
"""From accept until a PROXY header, TLS and WebSocket are through, together."""

HANDSHAKES_MAX: Final = 1000
"""Connections of one listener that are on that way. A handshake takes 1 to 3 ms of the loop, and
each holds what TLS needs for it."""

UPGRADE_BYTES_MAX: Final = 32 * KIB
"""Request to upgrade to WebSocket: four times what browsers send with large cookies, of clients
that nobody knows yet."""

FRAME_SHARE_BYTES: Final = 64 * KIB
"""What a connection may hold of a WebSocket frame that is not whole where all of them together hold
`BUFFERED_BYTES_MAX`, as of a packet that is not whole."""

REFUSAL_LOG_SECONDS: Final = 1.0
"""Least time between two lines of log about connections that a listener refused for one reason."""

TLS_PIECE_BYTES: Final = 16 * KIB
"""The largest TLS record (RFC 8446 5.1): deciphered and enciphered at a time, so that no connection
keeps larger buffers."""

CERTIFICATE_WARN_DAYS: Final = 7
"""Left of a certificate when the log warns of its end: what renews by itself does so with a third
of its life left, a month of the usual ninety days."""

PROXY_HEADER_BYTES_MAX: Final = 4096
"""PROXY header of version 2 with its extensions; those that are known take a few hundred bytes."""

WRITE_CREDIT_BYTES: Final = 64 * KIB
"""Given to the transport for one connection in one loop iteration: at 10,000 iterations a second it
is more than one connection can take. With `WRITE_HIGH_BYTES` it is what the transport may hold of a
client that reads nothing, beside `BUFFERED_BYTES_MAX`."""

WRITE_HIGH_BYTES: Final = 64 * KIB
"""Transport buffer at which a connection gets no more credit."""

WRITE_LOW_BYTES: Final = 16 * KIB
"""Transport buffer at which credit returns."""

SOCKET_UNSENT_BYTES: Final = 128 * KIB
"""In the kernel for one connection, beyond what is on its way on the network (`TCP_NOTSENT_LOWAT`):
of 4 MiB each (`net.ipv4.tcp_wmem`), a thousand clients that read nothing would take all of the
memory that the kernel has for TCP (`net.ipv4.tcp_mem`), from everybody on the machine."""

LINGER_SECONDS: Final = 2.0
"""How long a closed connection may take to read its last bytes before it is reset; also what a
client that ignores them may add to an orderly stop."""

DESCRIPTORS_RESERVED: Final = 256
"""Files that are neither connections nor partitions: journal, lock, listeners, HTTP, libraries, and
64 segments that are being read."""

PARTITION_DESCRIPTORS: Final = 4
"""Files that one partition holds open: its active segment, and three of what rolls have finished
and nobody has synced yet. Rolls of a log engine that holds more wait (`log::chore` in Rust)."""

# --- HTTP ---------------------------------------------------------------------------------------

HTTP_BODY_BYTES_MAX: Final = 2 * MIB
"""Request body: a publish of `PACKET_BYTES_MAX` in base64 with its JSON around it."""

HTTP_LINE_BYTES_MAX: Final = 200 * KIB
"""Line of a request: a path with the longest client id or topic, 65,535 bytes, each as `%XX`."""

HTTP_CONNECTIONS_MAX: Final = 128
"""Connections of the HTTP door; beyond it new ones are closed. Administration needs few, and
they come out of `DESCRIPTORS_RESERVED`."""

HTTP_REQUEST_MS: Final = 30_000
"""From accept to a whole first request, and from its head to the end of its body: a few idle
connections would otherwise hold all of `HTTP_CONNECTIONS_MAX`."""

HTTP_PUBLISHES_MAX: Final = 256
"""Publishes over HTTP that may wait for the disk, their requesters gone or not; further ones are
refused. Twice the connections, so that only who hangs up and comes back ever meets it."""

HTTP_PAGE: Final = 100
"""Sessions or retained messages in an answer that asks for no number of its own."""

HTTP_PAGE_MAX: Final = 1_000
"""Those that one may ask for: about 300 KB of JSON and 5 ms of the loop."""

HTTP_EXCERPT_BYTES_MAX: Final = 1_024
"""Of each payload that a list of retained messages shows; one message alone is shown whole."""

TRACE_SECONDS_MAX: Final = 3_600
"""For a live trace: one that was forgotten ends."""

TRACE_PAYLOAD_BYTES_MAX: Final = 4_096
"""Of each payload in a live trace: its beginning tells what it is."""

TRACE_POLL_MS: Final = 100
"""Between two looks at what a trace has seen: live for a person, cheap for the node."""

TRACE_BEAT_SECONDS: Final = 10
"""Silence of a trace after which an empty line shows that it stands."""

# --- log ----------------------------------------------------------------------------------------

JOURNAL_BYTES: Final = 64 * MIB
"""Journal of one node: half a second of appends at 128 MB/s before segments must be synced."""

JOURNAL_BYTES_MIN: Final = MIB
JOURNAL_BYTES_CEILING: Final = 16 * GIB

SEGMENT_BYTES: Final = GIB
"""Segment file, Kafka's default (`segment.bytes`)."""

SEGMENT_BYTES_MIN: Final = 64 * KIB
SEGMENT_BYTES_CEILING: Final = 2 * GIB - 1
"""Index entries hold positions of 31 bits, as Kafka's do."""

SEGMENT_MS: Final = 7 * DAY_MS
"""Age of a segment, Kafka's default (`segment.ms`)."""

SEGMENT_INDEX_BYTES: Final = 10 * MIB
"""Index of a segment, Kafka's default (`segment.index.bytes`)."""

SEGMENT_INDEX_BYTES_MIN: Final = 24
"""One entry of each index and the last of the time index (`headrace-core::log::settings`)."""

RETENTION_MS: Final = 7 * DAY_MS
"""Kafka's default (`log.retention.hours`): a disk that nobody watches does not fill in silence."""

RETENTION_CHECK_MS: Final = 300_000
"""How often retention is asked for, Kafka's default (`log.retention.check.interval.ms`)."""

COMPACTION_BYTES_PER_SECOND: Final = 100 * MIB
"""Read and written by compaction (setting `log.compaction_bytes_per_second`): half of what a plain
disk gives, so that appends go on beside it. Kafka's own (`log.cleaner.io.max.bytes.per.second`) is
no bound."""

COMPACTION_BYTES_PER_SECOND_MIN: Final = 64 * KIB

RETENTION_FIRST_MS: Final = 30_000
"""From the start of a node to the first time, Kafka's own (`LogManager.InitialTaskDelayMs`)."""

DELETE_RETENTION_MS: Final = DAY_MS
"""Kafka's default (`delete.retention.ms`): a reader that starts at the beginning has a day to see
the tombstone of what it has seen."""

FLUSH_MS: Final = 1000
"""Default of `flush.ms` under `fsync = "interval"`; Kafka's own is for ever."""

INDEX_INTERVAL_BYTES: Final = 4 * KIB
"""Log bytes between index entries, Kafka's default (`index.interval.bytes`)."""

DIRECT_WRITE_BYTES: Final = MIB
"""Run of batches that goes straight to its segment: beyond it, writing twice costs more than a
second fdatasync, which on a growing file waits for the file system's journal too (ADR 0003)."""

RESERVE_BYTES: Final = 256 * MIB
"""What is left of a disk when appends are refused: a journal file and the indexes of open segments
fit in, and what other programs write until the disk is looked at again, each second."""

RESERVE_BYTES_CEILING: Final = 1024 * GIB
"""More than that is a disk of another's."""

DIRECT_WRITE_BYTES_MIN: Final = 4 * KIB
"""A page: what precedes the first page boundary goes through the journal in any case."""

READS_MAX: Final = 10_000
"""Reads that may wait for the disk; further ones are refused. A connection waits for one
at a time once half as many wait, so that only thousands that all read old records ever meet it."""

STATE_RECORDS: Final = 10_000
"""Records of one partition of an internal stream after which its state is written anew: a start
reads no more of them than this, or than the state holds, in some 0.2 s."""

STATE_AGE_MS_MAX: Final = 3_600_000
"""How long a state may stay behind its log. Far less than compaction keeps tombstones, for a state
that is older than a tombstone which went would bring its key back."""

UNKEPT_BYTES_MAX: Final = 512 * MIB
"""Records of all partitions, written since the last sources of messages were kept beside them, that
a start after a crash reads: one or two seconds."""

UNKEPT_CHECK_BYTES: Final = 64 * MIB
"""Appended before what is not kept is added up."""

# --- memory -------------------------------------------------------------------------------------

HEAP_KEPT_BYTES: Final = 32 * MIB
"""Freed memory at the end of the heap that is kept for the next message. glibc gives back what is
beyond twice its largest buffer, so a busy node would ask for the same pages again and again."""

HEAP_MAPPED_BYTES: Final = 4 * MIB
"""Buffers from this size on are mappings of their own, given back when they are freed: above what
one turn of the loop reads and writes for a connection, below what would leave holes in the heap."""

# --- life ---------------------------------------------------------------------------------------

LOOP_LAG_SECONDS: Final = 0.1
"""How often it is seen how late the event loop is: ten wake-ups a second, some 0.02 % of a core."""

DRAIN_SECONDS: Final = 10.0
"""Orderly stop: what is in flight may take this long before connections are cut."""

assert JOURNAL_BYTES <= RESERVE_BYTES
assert WRITE_HIGH_BYTES < HEAP_MAPPED_BYTES < HEAP_KEPT_BYTES
assert WRITE_LOW_BYTES < WRITE_HIGH_BYTES <= OUTBOUND_BYTES_MAX
assert GROUP_RECORD_BYTES_MAX + 4 * KIB < MESSAGE_BYTES_MAX, "a group is one record"
assert MESSAGE_BYTES_CEILING < KAFKA_REQUEST_BYTES_MAX <= KAFKA_BUFFERED_BYTES_MAX
assert KAFKA_FETCH_BYTES_MAX < KAFKA_RESPONSE_BYTES_MAX
assert PACKET_BYTES_MAX > MIB, "a payload of 1 MiB must pass with its topic"
assert PACKET_BYTES_MAX * 4 // 3 < HTTP_BODY_BYTES_MAX
assert PACKET_BYTES_MAX < OUTBOUND_BYTES_MAX
assert PACKET_BYTES_MAX < SESSION_BYTES_MAX < QUEUED_BYTES_MAX
assert KAFKA_FETCH_WAIT_MS_MAX < KAFKA_IDLE_MS, "who waits for records is not idle"
assert HTTP_CONNECTIONS_MAX < HTTP_PUBLISHES_MAX
assert 4 * STATE_AGE_MS_MAX < DELETE_RETENTION_MS
assert 4 * UNKEPT_CHECK_BYTES < UNKEPT_BYTES_MAX
assert HTTP_CONNECTIONS_MAX < DESCRIPTORS_RESERVED
assert STREAM_PARTITIONS_MAX <= PARTITIONS_MAX
assert LINGER_SECONDS < DRAIN_SECONDS
