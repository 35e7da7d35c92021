"""Bounds of the streams that users make, and of what they are called."""

from typing import Final

from headrace.limits.units import MIB

STREAM_NAME_LENGTH_MAX: Final = 249
"""Kafka's limit: a partition folder `name-N` had to fit 255 bytes (`Topic.MAX_NAME_LENGTH`)."""

STREAM_PARTITIONS_MAX: Final = 1024
"""Partitions of one stream. Each holds open files and index memory; no stream that one node
serves gains from more."""

STREAM_FILTERS_MAX: Final = 256
"""Topic filters of one stream; each is an entry of the matcher that every publish walks."""

STREAMS_MAX: Final = 1000
"""Streams of one node (setting `limits.streams`): clients may create streams, so it is bounded."""

PARTITIONS_MAX: Final = 3500
"""Partitions of the streams of users on one node (setting `limits.partitions`): with
`PARTITION_DESCRIPTORS` each they leave 5,500 of the usual hard limit of 20,000 descriptors for
connections. Metadata of all of them is answered in milliseconds."""

MESSAGE_BYTES_CEILING: Final = 64 * MIB
"""Largest `max.message.bytes`: a batch is one allocation and one journal entry or note."""
