"""Every bound of a node's Python side, with its reason and its source: `limits.NAME`.

Owns numbers, each in the module of its subject. Where a bound is a setting, the number is its
default and the setting's range stands beside it in `headrace.config`; those of what runs beside a
node are in `job_limits`. Names carry kind, unit and bound. Relations between bounds are asserted at
the end, so that a careless change stops the import and not a running node.
"""

from headrace.limits.access import *
from headrace.limits.frame import *
from headrace.limits.groups import *
from headrace.limits.http import *
from headrace.limits.internal import *
from headrace.limits.kafka import *
from headrace.limits.log import *
from headrace.limits.mqtt import *
from headrace.limits.process import *
from headrace.limits.queues import *
from headrace.limits.sockets import *
from headrace.limits.streams import *
from headrace.limits.units import *

assert JOURNAL_BYTES <= RESERVE_BYTES
assert WRITE_HIGH_BYTES < HEAP_MAPPED_BYTES < HEAP_KEPT_BYTES
assert WRITE_LOW_BYTES < WRITE_HIGH_BYTES <= OUTBOUND_BYTES_MAX
assert GROUP_RECORD_BYTES_MAX + 4 * KIB < MESSAGE_BYTES_MAX, "a group is one record"
assert MESSAGE_BYTES_CEILING < FRAME_PARTS_BYTES_MAX
assert FRAME_PARTS_BYTES_MAX * 5 // 4 < FRAME_BUFFERED_BYTES_MAX, "consumers have some room"
assert KAFKA_PARTS_BYTES_MAX * 5 // 4 < KAFKA_BUFFERED_BYTES_MAX, "what is in work has some room"
assert FRAME_IN_FLIGHT_BYTES_MAX < UNDURABLE_BYTES_MAX
assert FRAME_HEARTBEAT_MS < FRAME_IDLE_MS, "who waits for records is not idle"
assert MESSAGE_BYTES_CEILING < KAFKA_REQUEST_BYTES_MAX <= KAFKA_PARTS_BYTES_MAX
assert KAFKA_FETCH_PARTITION_BYTES_MAX <= KAFKA_FETCH_BYTES_MAX < KAFKA_RESPONSE_BYTES_MAX
assert PACKET_BYTES_MAX > MIB, "a payload of 1 MiB must pass with its topic"
assert PACKET_BYTES_MAX * 4 // 3 < HTTP_BODY_BYTES_MAX
assert PACKET_BYTES_MAX < OUTBOUND_BYTES_MAX
assert PACKET_BYTES_MAX < SESSION_BYTES_MAX < QUEUED_BYTES_MAX
assert KAFKA_FETCH_WAIT_MS_MAX < KAFKA_IDLE_MS, "who waits for records is not idle"
assert HTTP_CONNECTIONS_MAX < HTTP_PUBLISHES_MAX
assert QUEUE_PULLS_MAX < HTTP_CONNECTIONS_MAX, "whoever administrates has room"
assert 4 * STATE_AGE_MS_MAX < DELETE_RETENTION_MS
assert 4 * UNKEPT_CHECK_BYTES < UNKEPT_BYTES_MAX
assert HTTP_CONNECTIONS_MAX < DESCRIPTORS_RESERVED
assert STREAM_PARTITIONS_MAX <= PARTITIONS_MAX
assert QUEUE_RETRY_BACKOFF_MS <= QUEUE_RETRY_BACKOFF_MAX_MS
assert KAFKA_BEHIND_MAX <= KAFKA_PIPELINE_MAX
assert KAFKA_ELEMENTS_FEW < KAFKA_ELEMENTS_AT_ONCE
assert GROUPS_MAX < KAFKA_REQUEST_ELEMENTS_MAX
assert STREAM_PARTITIONS_MAX <= KAFKA_NESTED_ELEMENTS_MAX < KAFKA_REQUEST_ELEMENTS_MAX
assert LINGER_SECONDS < DRAIN_SECONDS
