"""The Kafka door: the requests of Kafka's clients, answered from streams.

`door` holds what all connections share and the table of requests; `connection` keeps one
connection's requests in order; the other modules answer: `produce`, `fetch`, `topics`, `offsets`
(by time), `groups` (committed offsets) and `producers` (producer ids). Python works once per
request here and never per record: batches pass through as they came.
"""

from headrace.node.kafka.door import KafkaDoor, KafkaSettings

__all__ = ["KafkaDoor", "KafkaSettings"]
