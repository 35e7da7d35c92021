"""The exception tree: what the world does to headrace, and what each door answers.

```
HeadraceError
├── ConfigError                a setting is unknown or unusable; exit code 2
├── StartError                 a node cannot start: port, folder, bind address
├── DefinitionError            a stream.json is damaged or missing
├── InvalidTopicError          HTTP 400                       a topic name or filter is none
├── CatalogError
│   ├── InvalidStreamError     HTTP 400, Kafka 17, 37 or 40   name, partitions, filters, settings
│   ├── UnknownStreamError     HTTP 404, Kafka 3, retry
│   ├── StreamExistsError      HTTP 409, Kafka 36
│   └── StreamLimitError       HTTP 409, Kafka 44             the node's bound is reached
├── InvalidStartError          HTTP 400  MQTT 0x83            a stream has no such place to begin
├── GroupError
│   ├── UnknownGroupError      HTTP 404                       no consumer group of this name
│   ├── GroupInUseError        HTTP 409                       it has members
│   └── GroupLimitError        HTTP 409                       no more fit limits.queue_groups
├── QueueRequestError          HTTP 400                       a queue cannot do what is asked
├── RetainedLimitError         HTTP 409                       no room to retain a message
├── QueueFullError             HTTP 429, Kafka 44             a queue owes as much as it may
├── MessageTooLargeError       HTTP 413, Kafka 10             larger than max.message.bytes
├── StaleEpochError            HTTP 409                       a newer epoch has published
├── AccessError
│   ├── AuthenticationError    HTTP 401, Kafka 58, MQTT 0x86  name, password or proof is wrong
│   ├── ThrottledError         HTTP 429, Kafka 58, MQTT 0x9F, retry  its address failed too often
│   ├── BusyError              HTTP 503, Kafka 58, MQTT 0x89, retry  too many passwords wait
│   ├── ForbiddenError         HTTP 403, Kafka 29, MQTT 0x87  a rule or a role says no
│   ├── InvalidAclError        HTTP 400, Kafka 42             no rule says what it would
│   └── InvalidUserError       HTTP 400                       name, password or role
│       ├── UnknownUserError   HTTP 404
│       └── UserExistsError    HTTP 409                       or is the last who may manage
├── UsersError                 the file of users, or of ACLs, cannot be written
│   └── UnreadableUsersError   or read, or is damaged; exit code 2
├── InputError                 an input file is missing or no CSV of readings; exit code 2
├── MqttError                  a broker is not there, hangs up, or refuses a command
├── PublishError               a broker refuses a collector for good
├── ScrapeError                a page of metrics could not be had, or is none
├── DeviceError                the GPUs of this machine cannot be read
├── UnavailableError           HTTP 503, Kafka 56, retry      starting, draining, disk failed
│   └── LostWritesError        HTTP 503, Kafka 56, retry      a sync failed: nothing more is written
├── MalformedError             bytes break their protocol; the connection closes
├── ClientError                see headrace.client.errors
└── NativeError                raised by the compiled module; its stub tells them apart
    ├── CorruptRecordError             Kafka 2, retry
    │   └── InvalidRecordError         Kafka 87
    ├── UnsupportedRecordError         Kafka 76
    ├── RecordsTooLargeError           Kafka 10
    ├── OutOfOrderSequenceError        Kafka 45
    ├── StaleProducerEpochError        Kafka 47
    └── StorageError             HTTP 503, Kafka 56, retry
        ├── StorageCorruptError  HTTP 503, Kafka 2            damaged: no repetition helps
        ├── StorageFullError     HTTP 503, Kafka 56, retry     nearly full; the rest goes on
        └── StorageLimitError    HTTP 409, Kafka 44            no more partitions fit its journal
```

`HeadraceError` and what is under `NativeError` come from the compiled module, which raises them.
Messages are one line: what, where, and what to do. Bugs are assertions, never one of these.
"""

from headrace.native import (
    CorruptRecordError,
    HeadraceError,
    InvalidRecordError,
    NativeError,
    OutOfOrderSequenceError,
    RecordsTooLargeError,
    StaleProducerEpochError,
    StorageCorruptError,
    StorageError,
    StorageFullError,
    StorageLimitError,
    UnsupportedRecordError,
)

__all__ = [
    "AccessError",
    "AuthenticationError",
    "BusyError",
    "CatalogError",
    "ConfigError",
    "CorruptRecordError",
    "DefinitionError",
    "DeviceError",
    "ForbiddenError",
    "GroupError",
    "GroupInUseError",
    "GroupLimitError",
    "HeadraceError",
    "InputError",
    "InvalidAclError",
    "InvalidRecordError",
    "InvalidStartError",
    "InvalidStreamError",
    "InvalidTopicError",
    "InvalidUserError",
    "LostWritesError",
    "MalformedError",
    "MessageTooLargeError",
    "MqttError",
    "NativeError",
    "OutOfOrderSequenceError",
    "PublishError",
    "QueueFullError",
    "QueueRequestError",
    "RecordsTooLargeError",
    "RetainedLimitError",
    "ScrapeError",
    "StaleEpochError",
    "StaleProducerEpochError",
    "StartError",
    "StorageCorruptError",
    "StorageError",
    "StorageFullError",
    "StorageLimitError",
    "StreamExistsError",
    "StreamLimitError",
    "ThrottledError",
    "UnavailableError",
    "UnknownGroupError",
    "UnknownStreamError",
    "UnknownUserError",
    "UnreadableUsersError",
    "UnsupportedRecordError",
    "UserExistsError",
    "UsersError",
]


class ConfigError(HeadraceError):
    """A setting is unknown, of the wrong type, or out of range; the message says where."""

    http_status = 400


class InvalidStartError(HeadraceError):
    """A subscription to a stream, or a group, is to begin where it cannot; the message says why."""

    http_status = 400


class StartError(HeadraceError):
    """A node, or a broker to be measured, cannot start here and now: a port is in use, say."""


class DefinitionError(HeadraceError):
    """A `stream.json` is damaged, or a stream's data has none."""


class InvalidTopicError(HeadraceError):
    """An MQTT topic name or filter is empty, too long, or malformed."""

    http_status = 400


class CatalogError(HeadraceError):
    """A change of the streams is refused."""


class InvalidStreamError(CatalogError):
    """A part of a stream's definition is unusable.

    `kafka_code` tells which: 17 name, 37 partitions, 40 filters, key or settings.
    """

    http_status = 400

    def __init__(self, message: str, kafka_code: int = 40) -> None:
        super().__init__(message)
        self.kafka_code = kafka_code


class UnknownStreamError(CatalogError):
    """There is no stream of this name."""

    http_status = 404
    kafka_code = 3
    retriable = True


class StreamExistsError(CatalogError):
    """There is a stream of this name."""

    http_status = 409
    kafka_code = 36


class StreamLimitError(CatalogError):
    """The node holds as many streams or partitions as its limits allow."""

    http_status = 409
    kafka_code = 44


class GroupError(HeadraceError):
    """A change of a consumer group is refused."""


class UnknownGroupError(GroupError):
    """There is no consumer group of this name."""

    http_status = 404


class GroupInUseError(GroupError):
    """A consumer group has members, which would not hear of the change."""

    http_status = 409


class GroupLimitError(GroupError):
    """Queues have as many groups as `limits.queue_groups` allows."""

    http_status = 409


class QueueRequestError(HeadraceError):
    """A queue cannot do what is asked, or it is said wrongly."""

    http_status = 400


class RetainedLimitError(HeadraceError):
    """As much is retained as `limits.retained_messages` and `limits.retained_bytes` allow."""

    http_status = 409


class QueueFullError(HeadraceError):
    """A queue owes as much as its `depth.max.messages` and `depth.max.bytes` allow."""

    http_status = 429
    kafka_code = 44


class MessageTooLargeError(HeadraceError):
    """A batch is larger than its stream's `max.message.bytes`."""

    http_status = 413
    kafka_code = 10


class StaleEpochError(HeadraceError):
    """A message's `source` has published under a higher `epoch`: its publisher was replaced."""

    http_status = 409


class AccessError(HeadraceError):
    """Somebody may not do something.

    `mqtt_code` is the reason code of a CONNACK or DISCONNECT.
    """

    http_status = 403
    mqtt_code = 0x87


class AuthenticationError(AccessError):
    """A user name, a password or a proof is wrong; which of them is not told."""

    http_status = 401
    kafka_code = 58
    mqtt_code = 0x86


class ThrottledError(AccessError):
    """An address has failed too often and must wait before anything of it is checked."""

    http_status = 429
    kafka_code = 58
    mqtt_code = 0x9F
    retriable = True


class BusyError(AccessError):
    """Too many passwords wait to be checked."""

    http_status = 503
    kafka_code = 58
    mqtt_code = 0x89
    retriable = True


class ForbiddenError(AccessError):
    """A rule says no, or a role is missing."""

    kafka_code = 29


class InvalidUserError(AccessError):
    """A name, a password or a role cannot be one."""

    http_status = 400


class UnknownUserError(InvalidUserError):
    """There is no user of this name."""

    http_status = 404


class UserExistsError(InvalidUserError):
    """There is a user of this name, or nobody else could manage the node."""

    http_status = 409


class InvalidAclError(AccessError):
    """No access rule says what an ACL of Kafka's would."""

    kafka_code = 42
    http_status = 400


class UsersError(HeadraceError):
    """The file of users, or that of ACLs, is damaged, or cannot be read or written."""

    http_status = 503


class UnreadableUsersError(UsersError):
    """It is damaged, or cannot be read."""


class InputError(HeadraceError):
    """An input file cannot be read, or is no CSV of readings; at most three lines."""


class MqttError(HeadraceError):
    """A broker is not there, hung up, or refused what a command asked; at most three lines.

    Attributes:
        retriable: whether the same may succeed later.
        reason_code: MQTT's, 0 where there is none.
    """

    def __init__(self, message: str, *, retriable: bool = False, reason_code: int = 0) -> None:
        super().__init__(message)
        self.retriable = retriable
        self.reason_code = reason_code


class PublishError(HeadraceError):
    """A broker is not there at the start, or refuses what no repetition can mend."""


class ScrapeError(HeadraceError):
    """A page of metrics could not be had, or is none.

    Attributes:
        reason: one word of it, which is counted.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class DeviceError(HeadraceError):
    """The GPUs of this machine cannot be read; at most three lines that say what to install."""


class UnavailableError(HeadraceError):
    """The node does not serve now: it starts, drains, or its disk failed."""

    http_status = 503
    kafka_code = 56
    retriable = True


class LostWritesError(UnavailableError):
    """A sync failed: what was written may be lost, and no later sync would tell (fsync(2)).

    A node writes nothing more, as after a sync of its log that failed.
    """


class MalformedError(HeadraceError):
    """Bytes that break their protocol; what follows them on a connection has no meaning."""
