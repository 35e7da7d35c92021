"""Clients of a headrace broker, and of Apache Kafka, for Python programs."""

from headrace.client.admin import Admin
from headrace.client.config import AdminConfig, ConsumerConfig, ProducerConfig, QueueConfig
from headrace.client.consumer import Consumer
from headrace.client.errors import (
    BufferFullError,
    ClientError,
    ConnectionLostError,
    CorruptMessageError,
    DeadlineError,
    OffsetOutOfRangeError,
    QueueError,
    RequestError,
    TooLateError,
    UnknownQueueError,
    UnknownStreamError,
)
from headrace.client.fetch import FetchClient
from headrace.client.login import Login
from headrace.client.producer import Producer
from headrace.client.queues import Message, Queue, Reject
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
    "Message",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "Producer",
    "ProducerConfig",
    "Queue",
    "QueueConfig",
    "QueueError",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "Reject",
    "RequestError",
    "TooLateError",
    "TopicPartition",
    "UnknownQueueError",
    "UnknownStreamError",
]
