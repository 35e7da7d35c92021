"""Clients of a headrace broker, and of Apache Kafka, for Python programs."""

from headrace.client.admin import Admin
from headrace.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from headrace.client.consumer import Consumer
from headrace.client.errors import (
    BufferFullError,
    ClientError,
    ConnectionLostError,
    CorruptMessageError,
    DeadlineError,
    OffsetOutOfRangeError,
    RequestError,
    UnknownStreamError,
)
from headrace.client.fetch import FetchClient
from headrace.client.login import Login
from headrace.client.producer import Producer
from headrace.client.records import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Record,
    RecordMetadata,
    TopicPartition,
)
from headrace.client.subscription import RebalanceListener

__all__ = [
    "Admin",
    "AdminConfig",
    "BufferFullError",
    "ClientError",
    "ConnectionLostError",
    "Consumer",
    "ConsumerConfig",
    "CorruptMessageError",
    "DeadlineError",
    "FetchClient",
    "Login",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "Producer",
    "ProducerConfig",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "RequestError",
    "TopicPartition",
    "UnknownStreamError",
]
