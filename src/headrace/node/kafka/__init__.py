"""The Kafka door: the requests of Kafka's clients, answered from streams.

`door` holds what all connections share and the table of requests; `connection` keeps one
connection's requests in order and to its quotas; `guard` says what a client may ask, `operations`
tells it. The other modules answer: `produce`, `fetch`, `topics`, `offsets` (by time and epoch),
`groups` (committed offsets), `members` (of groups), `producers` (producer ids), `records` (their
deletion), `configs`, `acls`, `cluster` and `sasl`. Python works once per request here and never per
record: batches pass through as they came.
"""

from headrace.node.kafka.door import KafkaDoor, KafkaSettings

__all__ = ["KafkaDoor", "KafkaSettings"]
