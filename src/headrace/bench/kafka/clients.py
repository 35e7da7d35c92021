"""The clients that load is made with: librdkafka through confluent-kafka, and headrace's own."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headrace.bench.kafka.load import Load
    from headrace.client.login import Login

CLIENTS: Final = ("confluent", "headrace")

INSTALL: Final = "pip install confluent-kafka"
"""For who has not got the first."""


def installed() -> tuple[str, ...]:
    """Those that are there."""
    has_confluent = importlib.util.find_spec("confluent_kafka") is not None
    return CLIENTS if has_confluent else ("headrace",)


def has_arrow() -> bool:
    """Whether Arrow batches can be read."""
    return importlib.util.find_spec("pyarrow") is not None


def of_confluent(servers: str, login: Login | None) -> dict[str, Any]:
    """Settings that librdkafka's clients share."""
    settings: dict[str, Any] = {"bootstrap.servers": servers, "client.id": "headrace-bench"}
    if login is not None:
        settings |= {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": login.user,
            "sasl.password": login.password,
        }
    return settings


def confluent_producer(servers: str, login: Login | None, load: Load) -> dict[str, Any]:
    """Settings of a producer of librdkafka."""
    settings = of_confluent(servers, login) | {
        "acks": load.acks,
        "enable.idempotence": load.idempotent,
        "compression.type": load.compression,
        "delivery.report.only.error": True,
    }
    if load.linger_ms is not None:
        settings["linger.ms"] = load.linger_ms
    if load.batch_bytes is not None:
        settings["batch.size"] = load.batch_bytes
    return settings


def own_producer(login: Login | None, load: Load) -> dict[str, Any]:
    """Settings of `headrace.Producer`."""
    settings: dict[str, Any] = {
        "client_id": "headrace-bench",
        "login": login,
        "acks": load.acks if load.acks == "all" else int(load.acks),
        "enable_idempotence": load.idempotent,
        "compression_type": load.compression,
    }
    if load.linger_ms is not None:
        settings["linger_ms"] = round(load.linger_ms)
    if load.batch_bytes is not None:
        settings["batch_size"] = load.batch_bytes
    return settings
