"""`[[kafka.quotas]]`: how much Kafka clients may ask of a node in a second."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from headrace import limits
from headrace.config.readers import Table, Words, count, size


class KafkaQuota(Table):
    """One of `[[kafka.quotas]]`: whom it is about, and their rates."""

    users: Words = Field(default=(), description="User names; `*` at the end stands for any.")
    clients: Words = Field(default=(), description="Client ids; `*` at the end stands for any.")
    producer_byte_rate: Annotated[int, size(0, 1024 * limits.GIB)] = Field(
        default=0, description="Bytes that they produce in a second; 0 for any number."
    )
    consumer_byte_rate: Annotated[int, size(0, 1024 * limits.GIB)] = Field(
        default=0, description="Bytes that they fetch in a second; 0 for any number."
    )
    request_rate: Annotated[int, count(0, 1_000_000_000)] = Field(
        default=0, description="Requests that they make in a second; 0 for any number."
    )

    @model_validator(mode="after")
    def _bounds_somebody(self) -> KafkaQuota:
        if not (self.users or self.clients):
            raise ValueError('a quota names users or clients; ["*"] gives each of them one')
        if not (self.producer_byte_rate or self.consumer_byte_rate or self.request_rate):
            raise ValueError(
                "a quota has one of producer_byte_rate, consumer_byte_rate and request_rate"
            )
        return self
