"""Clients of a headrace broker, and of Apache Kafka, for Python programs."""

from headrace.client.config import ProducerConfig
from headrace.client.errors import (
    BufferFullError,
    ClientError,
    ConnectionLostError,
    DeadlineError,
    OffsetOutOfRangeError,
    RequestError,
    UnknownStreamError,
)
from headrace.client.fetch import FetchClient
from headrace.client.login import Login
from headrace.client.producer import Producer, RecordMetadata

__all__ = [
    "BufferFullError",
    "ClientError",
    "ConnectionLostError",
    "DeadlineError",
    "FetchClient",
    "Login",
    "OffsetOutOfRangeError",
    "Producer",
    "ProducerConfig",
    "RecordMetadata",
    "RequestError",
    "UnknownStreamError",
]
