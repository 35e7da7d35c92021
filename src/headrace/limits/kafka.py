"""Bounds of the Kafka door: requests, fetches, batches, quotas, producers."""

from typing import Final

from headrace.limits.units import KIB, MIB

KAFKA_REQUEST_BYTES_MAX: Final = 72 * MIB
"""One request: the largest batch that a stream may allow (`MESSAGE_BYTES_CEILING`) and the
batches of other partitions beside it. Kafka's own bound is 100 MiB (`socket.request.max.bytes`)."""

KAFKA_RESPONSE_BYTES_MAX: Final = 256 * MIB
"""One response, as a client takes it: far above any fetch it asks for, so only garbage meets it."""

KAFKA_BUFFERED_BYTES_MAX: Final = 256 * MIB
"""Requests of all connections together, unfinished or in work: clients that begin large requests
and stall cost no more than this. Beyond it a connection that has work begins nothing new, and one
that holds more than `KAFKA_PART_BYTES` is read no further until there is room."""

KAFKA_PARTS_BYTES_MAX: Final = KAFKA_BUFFERED_BYTES_MAX // 2
"""Of those, beginnings of requests, and whatever waits behind one that waits for others, and a
quarter as much of small ones where large ones hold it (`kernel/holdings.py`): beyond it the oldest
of them is ended."""

KAFKA_WORK_BYTES_MAX: Final = KAFKA_BUFFERED_BYTES_MAX // 2
"""And requests in work, when no further one with more than `KAFKA_ELEMENTS_FEW` is read and no
fetch waits for records: what they are in memory is many times what came."""

KAFKA_PART_BYTES: Final = 64 * KIB
"""What a connection may hold of a request that is not whole and counts as little: it gives way only
to others that hold little. And behind one that waits for others before it is read no further."""

KAFKA_UNREAD_BYTES_MAX: Final = 256 * MIB
"""Responses that transports hold for clients that do not read: each may have one of
`KAFKA_FETCH_BYTES_MAX`, or a batch of `MESSAGE_BYTES_CEILING`. Beyond it the client that has read
nothing for longest is ended."""

KAFKA_REQUEST_ELEMENTS_MAX: Final = 20_000
"""Array elements of one request, at all depths, or twice `limits.partitions` where that is more:
each becomes a Python object, and walking 100,000 of them, as collecting garbage does, holds up the
loop for 100 ms. A request that names every group of a node (`GROUPS_MAX`) needs half of it, one
with every partition (`PARTITIONS_MAX`) a few thousand."""

KAFKA_NESTED_ELEMENTS_MAX: Final = 2_048
"""Of those, in one array within another: partitions of a topic, of which a stream has 1,024 at most
(`STREAM_PARTITIONS_MAX`). What is about one topic is done in one go, in some 10 ms."""

KAFKA_ELEMENTS_AT_ONCE: Final = 1_000
"""Of a request that the event loop reads, and answers, by itself, in some 4 ms each. Larger ones
are read and written beside it."""

KAFKA_ELEMENTS_FEW: Final = 64
"""Of a request that is read and answered as soon as it comes, in less than a millisecond. Those
with more wait for their turn, where others wait already: a thousand clients that each ask for a
thousand names would take ten seconds of one iteration of the loop."""

KAFKA_TURN_SECONDS: Final = 0.005
"""Work on one request after which others have a turn: one with 20,000 names takes 0.2 s."""

KAFKA_ELEMENT_BYTES: Final = 192
"""What an element of a request counts to `KAFKA_BUFFERED_BYTES_MAX` while the request waits or is
in work: a topic without a name takes 2 bytes on the wire and 48 in memory, one to be created 16 and
192. A hundred thousand of them sent 64 times would be a gigabyte."""

KAFKA_RESPONSE_ELEMENTS_MAX: Final = 10_000_000
"""Array elements of one response: metadata of a million partitions with three replicas each."""

KAFKA_PIPELINE_MAX: Final = 64
"""Requests of one connection in work; beyond it the connection is read no further. Kafka's
clients keep 5 in flight; librdkafka without idempotence has no bound of its own."""

KAFKA_BEHIND_MAX: Final = 8
"""Requests of one connection in work where one of them must end before those behind it begin, as
all do but Produce: they wait, at some 3 KB each, so few are enough to have the next one at hand."""

KAFKA_BEGUN_IN_TURN: Final = 4
"""Requests that a connection begins when it has a turn."""

KAFKA_TURNS_AT_ONCE: Final = 32
"""Turns of an iteration of the event loop, of all connections together, with the first request of
each that the iteration reads beside them: some 8 ms. 300 clients with `KAFKA_PIPELINE_MAX` in one
packet would take 2 s. Fewer turns cost producers with thousands of requests in flight more."""

KAFKA_METADATA_KEPT: Final = 16
"""Numbers of partitions of which Metadata's answer is kept encoded: some 250 KB for the 1,024 of
the largest stream. Others are encoded anew, 6 us a partition."""

KAFKA_FETCH_PARTITION_BYTES_MAX: Final = 2 * MIB
"""Records of one partition in a fetch response, and the most that one waits for: so many are read
at once."""

KAFKA_FETCH_BYTES_MAX: Final = 4 * MIB
"""Records of one fetch response, whatever a client asks for: what clients by themselves ask of four
partitions. Reading and sending it takes the event loop some 5 ms: with Kafka's own bound of 55 MiB
(`fetch.max.bytes` of the broker) one reader held everyone up for 190 ms at a time, read half as
fast, and one that stopped reading held all of it."""

KAFKA_FETCH_READS_MAX: Final = 16
"""Reads of one fetch that wait for the disk together: four for each thread that reads, so that none
of them waits for the event loop, and so few that a fetch of every partition holds up no other."""

KAFKA_IDLE_MS: Final = 600_000
"""How long a Kafka connection may send nothing, and read nothing, Kafka's own
(`connections.max.idle.ms`)."""

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

PRODUCER_EXPIRY_MS: Final = 24 * 3_600_000
"""Silence after which an idempotent producer is forgotten, Kafka's default
(`producer.id.expiration.ms`)."""

PRODUCER_ID_BLOCK: Final = 1000
"""Producer ids that one durable record claims, as Kafka claims them (`ProducerIdsBlock`)."""
