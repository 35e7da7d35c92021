"""What the HTTP door may ask of a node about MQTT clients and retained messages."""

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from headrace.native import RetainedMessage, SessionReport, SessionSummary, TraceLine


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a connected client came from."""

    address: str
    """`HOST:PORT`, or what is known of it."""
    identity: str | None
    """Whom its certificate names."""


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """How far a session is in a partition."""

    partition: int
    position: int
    """The offset that is sent next."""
    end: int
    """The one behind the last record."""
    lag: int
    """Records between the two that are kept."""


@dataclass(frozen=True, slots=True)
class StreamReading:
    """How far a session is in a stream that it has subscribed to."""

    filter: str
    stream: str
    """Its name."""
    is_deleted: bool
    """It is no more, and the client has been away since."""
    partitions: list[PartitionReading]
    """Of a deleted stream, none."""


class Trace(Protocol):
    """A live trace, as a context; lines wait for `take` in a bounded ring."""

    def __enter__(self) -> Self:
        """Begins."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ends."""
        ...

    def take(self) -> tuple[list[TraceLine], int]:
        """What was seen since the last call, and how many lines before that are lost."""
        ...


class Clients(Protocol):
    """Sessions and retained messages. A call holds up the loop for some milliseconds at most."""

    def sessions(
        self, pattern: str, connected: bool | None, start: int, count_max: int
    ) -> tuple[list[tuple[SessionSummary, Origin | None]], int | None]:
        """A page of sessions whose client ids are like `pattern`, and where the next begins.

        `*` stands for any text. A page may hold fewer than `count_max` though others follow: a
        call looks at a bounded number of sessions.
        """
        ...

    def session(
        self, client_id: str
    ) -> tuple[SessionReport, Origin | None, list[StreamReading]] | None:
        """All of one session; of the streams that it reads the first, by filter."""
        ...

    async def disconnect(self, client_id: str) -> bool | None:
        """Ends a client's connection; whether it had one. None: it has no session.

        On return what became of the session survives power loss, where sessions do.

        Raises:
            UnavailableError: the disk refused; the connection has ended.
        """
        ...

    async def delete_session(self, client_id: str) -> bool:
        """Ends a session and its connection; whether there was one. On return it stays so.

        Raises:
            UnavailableError: the disk refused; the session has ended, and may come back after a
                restart.
        """
        ...

    def retained(
        self, topic_filter: str, start: str, count_max: int, payload_bytes_max: int
    ) -> tuple[list[RetainedMessage], str | None]:
        """A page of retained messages in the order of their topics, and where the next begins.

        Raises:
            InvalidTopicError: the filter is none.
        """
        ...

    def retained_message(self, topic: str) -> RetainedMessage | None:
        """The retained message of one topic."""
        ...

    async def count_retained(self, topic_filter: str) -> int:
        """How many retained messages match.

        Raises:
            InvalidTopicError: the filter is none.
        """
        ...

    async def delete_retained(self, topic_filter: str) -> int:
        """Deletes retained messages that match; how many. On return none of them comes back.

        Raises:
            InvalidTopicError: the filter is none.
        """
        ...

    def trace(
        self, client_id: str | None, topic_filter: str | None, payload_bytes_max: int
    ) -> Trace:
        """A trace of one client, or of the publishes to the topics of a filter, to be entered.

        Raises:
            InvalidTopicError: the filter is none.
            UnavailableError: as many run as may.
        """
        ...
