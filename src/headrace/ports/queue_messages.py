"""Messages of queues, as the HTTP door delivers, settles and shows them."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """A message.

    Attributes:
        partition, offset: where it lies.
        attempt: which delivery of it this is, from 1; of one that is looked at how many there were.
        topic: below `$queue/NAME`.
        source_topic: the topic that it was published to, if over MQTT or HTTP.
        enqueued_ms: when the queue took it, milliseconds since 1970.
        properties: its publisher's user properties, in their order.
        content_type, response_topic, correlation_data: as the publisher has said.
    """

    partition: int
    offset: int
    attempt: int
    topic: str
    source_topic: str | None
    enqueued_ms: int
    payload: bytes
    properties: tuple[tuple[str, str], ...]
    content_type: str | None
    response_topic: str | None
    correlation_data: bytes | None


@dataclass(frozen=True, slots=True)
class Pull:
    """What is pulled: `messages_max` messages at most, of those that `filter` matches (None: all).

    `wait_ms`, without a message; `deadline_ms` from the delivery until it has failed, None as the
    queue has it.
    """

    group: str
    filter: str | None
    messages_max: int
    wait_ms: int
    deadline_ms: int | None


class Pulling(Protocol):
    """A pull that has begun; awaited, what it has got."""

    def __await__(self) -> Generator[None, None, list[QueueMessage]]:
        """What it has got: nothing where the wait is over.

        Raises:
            ConnectionResetError: it was given back.
            UnknownStreamError: the queue was deleted meanwhile.
        """
        ...

    def give_back(self) -> None:
        """Whoever pulled has gone unanswered: the messages are delivered again, at once."""
        ...


@dataclass(frozen=True, slots=True)
class Settlement:
    """How deliveries of a group end.

    Attributes:
        filter: of the group, `#` of one without; None: whatever it is.
        verb: `ack`, `nack`, `reject` or `extend`.
        message_ids: each `PARTITION:OFFSET:ATTEMPT`.
        delay: until a message comes again, or its deadline passes, such as `30s`.
        reason: of a failure, in words.
    """

    group: str
    filter: str | None
    verb: str
    message_ids: Sequence[str]
    delay: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Peek:
    """What is looked at: `messages_max` messages at most.

    Attributes:
        group, filter: to whom; without a group, of all.
        partition: None: each in turn.
        offset: the first; None: the first that is owed.
        settled: what is settled too.
    """

    group: str | None
    filter: str | None
    partition: int | None
    offset: int | None
    messages_max: int
    settled: bool


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message, and what it is to a group.

    Attributes:
        key: what its order goes by.
        state: `available`, `in flight`, `resting`, `waiting`, `dead` or `settled`; None without a
            group.
        client: the client that has it in flight.
        until_ms: when its deadline is, or its rest ends, milliseconds since 1970.
    """

    message: QueueMessage
    key: bytes | None
    state: str | None
    client: str | None
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class PeekedMessages:
    """Messages, and the partition and offset to look at next; None: that is all."""

    messages: Sequence[PeekedMessage]
    following: tuple[int, int] | None
