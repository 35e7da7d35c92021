"""Clients of a headrace broker, and of Apache Kafka, for Python programs."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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

_HOMES: Final[dict[str, tuple[str, ...]]] = {
    "admin": ("Admin",),
    "config": (
        "AdminConfig",
        "ConsumerConfig",
        "ProducerConfig",
        "QueueConfig",
    ),
    "consumer": ("Consumer",),
    "errors": (
        "BufferFullError",
        "ClientError",
        "ConnectionLostError",
        "CorruptMessageError",
        "DeadlineError",
        "OffsetOutOfRangeError",
        "QueueError",
        "RequestError",
        "TooLateError",
        "UnknownQueueError",
        "UnknownStreamError",
    ),
    "fetch": ("FetchClient",),
    "login": ("Login",),
    "producer": ("Producer",),
    "queues": (
        "Message",
        "Queue",
        "Reject",
    ),
    "records": (
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "Record",
        "RecordMetadata",
        "TopicPartition",
    ),
    "subscription": ("RebalanceListener",),
}

_MODULES: Final = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """What its modules own, loaded late: who takes one client waits for no other."""
    if name in _MODULES:
        return getattr(import_module(f"headrace.client.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'headrace.client' has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
