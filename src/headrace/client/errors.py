"""What a client raises; the lower part of the tree that `headrace.errors` draws.

```
ClientError                  .code, .retriable
├── BufferFullError          a producer holds as much as it may; retry once there is room
├── ConnectionLostError      no broker is reached, or one hung up; retried until the deadline
├── DeadlineError            it was retried until the deadline; __cause__ is the last error
├── QueueError               .reason_code; a broker refused what was asked of a queue
│   ├── TooLateError             a delivery can no longer be settled: its message comes again
│   └── UnknownQueueError        there is no such queue
└── RequestError             a broker refused
    ├── CorruptMessageError      what the broker keeps there is damaged; `seek` beyond it
    ├── OffsetOutOfRangeError    the records are gone, or not there yet
    └── UnknownStreamError       there is no such stream or partition
```
"""

from typing import Final

from headrace.errors import HeadraceError
from headrace.wire.kafka.errors import ErrorCode


class ClientError(HeadraceError):
    """Base of what a client raises.

    Attributes:
        code: the Kafka error code.
        retriable: whether the same call may succeed later.
    """

    def __init__(self, message: str, code: ErrorCode) -> None:
        super().__init__(message)
        self.code = code
        self.kafka_code = code
        self.retriable = code.retriable

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        """Crosses process borders whole, as Spark's executors need."""
        return type(self), (str(self), self.code)


class BufferFullError(ClientError):
    """A producer holds as many records as it may; there is room once some are acknowledged."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        super().__init__(message, code)


class ConnectionLostError(ClientError):
    """No broker could be reached, or the connection broke."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> None:
        super().__init__(message, code)


class DeadlineError(ClientError):
    """Retries went on until the deadline; the cause is the last of their errors."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        super().__init__(message, code)


class RequestError(ClientError):
    """A broker answered with an error code."""


class CorruptMessageError(RequestError):
    """What the broker keeps at this offset is damaged: only a `seek` beyond it goes on.

    Not retriable, unlike the code, which is about what a producer sends.
    """

    def __init__(self, message: str, code: ErrorCode = ErrorCode.CORRUPT_MESSAGE) -> None:
        super().__init__(message, code)
        self.retriable = False


class OffsetOutOfRangeError(RequestError):
    """The offset lies before the log's first record, or after its last."""


class UnknownStreamError(RequestError):
    """There is no such stream, or no such partition of it.

    Not retriable, unlike the code: brokers open their doors when they know their streams.
    """

    def __init__(self, message: str, code: ErrorCode) -> None:
        super().__init__(message, code)
        self.retriable = False


_OF_REASON: Final = {
    0x80: ErrorCode.KAFKA_STORAGE_ERROR,
    0x86: ErrorCode.SASL_AUTHENTICATION_FAILED,
    0x87: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    0x8F: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    0x90: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    0x95: ErrorCode.MESSAGE_TOO_LARGE,
    0x97: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}
"""The code of Kafka's that says what a reason code of MQTT 5.0 says (2.4)."""


class QueueError(ClientError):
    """A broker refused what was asked of a queue.

    Attributes:
        reason_code: MQTT's; 0 where the broker has said none.
    """

    def __init__(self, message: str, reason_code: int = 0) -> None:
        super().__init__(message, _OF_REASON.get(reason_code, ErrorCode.UNKNOWN_SERVER_ERROR))
        self.reason_code = reason_code

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (str(self), self.reason_code)


class TooLateError(QueueError):
    """A delivery can no longer be settled: others have got its message, or will, or did settle it.

    Its deadline has passed, or the connection that brought it is gone.
    """

    def __init__(self, message: str, reason_code: int = 0x83) -> None:
        super().__init__(message, reason_code)


class UnknownQueueError(QueueError):
    """There is no such queue. Not retriable, unlike its code, as with `UnknownStreamError`."""

    def __init__(self, message: str, reason_code: int = 0x90) -> None:
        super().__init__(message, reason_code)
        self.retriable = False


_CLASSES: dict[ErrorCode, type[RequestError]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownStreamError,
}

_REMEDIES: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "; `headrace streams list` shows what is there, `headrace streams create` adds one"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "; no rule of the broker gives this user that right (`headrace access check` tells)"
    ),
}


def error_of(code: int, what: str, why: str | None = None) -> RequestError:
    """The error of `code`, which is one: of its own class where it has one.

    `what` was answered so; `why` is the broker's own word.
    """
    error = ErrorCode.of(code)
    name = error.name if error == code else f"error {code}"
    remedy = _REMEDIES.get(error, "") if why is None else f": {why}"
    return _CLASSES.get(error, RequestError)(f"{what}: {name}{remedy}", error)


def fetch_error(code: int, place: str, offset: int) -> RequestError:
    """The error of `code` that answers a fetch of `place` at `offset`."""
    what = f"fetch {place} at {offset}"
    if code == ErrorCode.CORRUPT_MESSAGE:
        return CorruptMessageError(
            f"{what}: the broker's records are damaged here, as its log says in full; `seek` "
            "beyond the damaged batch to go on (headrace log verify names its offsets)"
        )
    return error_of(code, what)


def check(code: int, what: str, why: str | None = None) -> None:
    """Raises the error of `code`, if it is one: `error_of`.

    Raises:
        RequestError: the subclass of this code, where there is one.
    """
    if code != ErrorCode.NONE:
        raise error_of(code, what, why)
