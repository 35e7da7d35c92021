"""A message of a queue: what it says, and how its delivery ends.

Owns how a delivery is read and settled. Must not know sockets, nor who asks for messages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace import limits
from headrace.client.errors import ConnectionLostError, QueueError, TooLateError
from headrace.client.mqtt_properties import Packed, user_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from paho.mqtt.client import MQTTMessage
    from paho.mqtt.properties import Properties

    from headrace.client.queues.link import Link

KEY: Final = "partition-key"
DEDUP_ID: Final = "dedup-id"
DELAY: Final = "delay"
PRIORITY: Final = "priority"
"""User property by which a queue chooses the partition, and keeps order."""

DELAY_S_MAX: Final = 36_500 * 86_400
"""As the broker takes one."""

DEADLINE_S_MAX: Final = limits.QUEUE_DEADLINE_MS_MAX // 1000

BELOW: Final = "$queue/"
"""What topics of queues begin with."""

_SETTLED_BEFORE: Final = 0x10
_TOO_LATE: Final = 0x83
_OF_DELIVERY: Final = frozenset(
    {"message-id", "group-id", "queue", "partition", "offset", "sequence", "attempt",
     "first-enqueued"}
)  # fmt: skip
_LEFT_OUT: Final = _OF_DELIVERY | {"group-filter", KEY}

_REASON_CHARACTERS_MAX: Final = 1_000
"""Of what a worker says of a failure: it goes with the message into the dead letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A delivery of a message.

    Attributes:
        payload: as it was put.
        topic: `$queue/NAME`, and behind it what the publisher has said.
        key: `partition-key`, or None.
        properties: the publisher's own user properties, and what the broker says of dead letters
            and of topics that are bound to the queue; of several with one name the last.
        message_id: `partition:offset:attempt`; settles it.
        partition, offset: where the message is.
        attempt: which delivery of the message it is, from 1.
        first_enqueued: when the queue was given it, ms since 1970.
        group: that it was delivered to.
    """

    payload: bytes
    topic: str
    key: str | None
    properties: Mapping[str, str]
    message_id: str
    partition: int
    offset: int
    attempt: int
    first_enqueued: int
    group: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Message(Delivered):
    """A delivery, which its consumer settles.

    Each way to settle it returns once that is durable, and raises:

    - `TooLateError`: its deadline has passed, or the connection that brought it is gone, so that
      the message comes again, or it is settled already (`ack` only returns then);
    - `ConnectionLostError`: the connection broke meanwhile; it may be settled, or come again;
    - `QueueError`: the broker refuses, for this user may not publish there.
    """

    hold: Hold = field(repr=False)

    @property
    def is_settled(self) -> bool:
        """Whether a call here has settled it, or is about to."""
        return self.hold.is_settled

    async def ack(self) -> None:
        """It is done with."""
        await self._settle("$ack")

    async def nack(self, delay: float | None = None, reason: str | None = None) -> None:
        """It has failed, and comes again after `delay` seconds; None: as the queue's back-off says.

        After too many failures it is a dead letter, with the last `reason`.
        """
        await self._settle("$nack", (*delay_of(delay), *reason_of(reason)))

    async def reject(self, reason: str | None = None) -> None:
        """It is not to come again: a dead letter, with `reason`."""
        await self._settle("$reject", reason_of(reason))

    async def extend(self, seconds: float | None = None) -> None:
        """It takes longer: its deadline is in `seconds`; None: as late as at a delivery."""
        hold, more = self.hold, delay_of(seconds, DEADLINE_S_MAX)
        await tell(hold.link, hold.queue, "$extend", [self.message_id], more)

    async def _settle(self, verb: str, said: Iterable[tuple[str, str]] = ()) -> None:
        hold = self.hold
        hold.is_settled = True
        hold.open.pop(self.message_id, None)
        code = await tell(hold.link, hold.queue, verb, [self.message_id], said)
        if code == _SETTLED_BEFORE and verb != "$ack":
            raise TooLateError(f"{self.message_id} of {self.group}: it is settled already", code)


@dataclass(slots=True, eq=False)
class Hold:
    """One message on the connection that brought it.

    Attributes:
        link: that connection.
        queue: by name.
        open: what the connection has brought and is not settled, by message-id.
        renew_s: when it needs a longer deadline, in the loop's time.
        told: properties of the publish that brought it.
        is_settled: by a call.
    """

    link: Link
    queue: str
    open: dict[str, Hold]
    renew_s: float
    told: Properties | None
    is_settled: bool = False


async def tell(
    link: Link,
    queue: str,
    verb: str,
    message_ids: Sequence[str],
    said: Iterable[tuple[str, str]] = (),
) -> int:
    """Says something of messages that a link has brought; the reason code of the worst off.

    Raises:
        TooLateError: one of them is not this connection's any more.
        ConnectionLostError: the connection broke meanwhile.
        QueueError: the broker refuses.
    """
    what = message_ids[0] if len(message_ids) == 1 else f"{len(message_ids)} messages"
    if link.lost.done():
        raise TooLateError(
            f"{what} of queue {queue}: the connection that brought it is gone, and the broker "
            "gives it to others"
        )
    pairs = [("message-id", each) for each in message_ids]
    properties = Packed(user_properties((*pairs, *said)))
    try:
        return await link.publish(f"{BELOW}{queue}/{verb}", b"", properties)
    except ConnectionLostError as error:
        raise ConnectionLostError(
            f"{what} of queue {queue}: it may be settled, or come again: {error}"
        ) from None
    except QueueError as error:
        if error.reason_code == _TOO_LATE:
            raise TooLateError(f"{what}: {error}") from None
        raise


def message_of(packet: MQTTMessage, hold: Hold) -> Message | None:
    """A delivery as the wire has it; None where it is none of a queue."""
    pairs: list[tuple[str, str]] = getattr(packet.properties, "UserProperty", [])
    told = dict(pairs)  # the broker's own stand last
    if not told.keys() >= _OF_DELIVERY:
        return None
    return Message(
        payload=bytes(packet.payload),
        topic=packet.topic,
        key=told.get(KEY),
        properties={name: told[name] for name in told if name not in _LEFT_OUT},
        message_id=told["message-id"],
        partition=int(told["partition"]),
        offset=int(told["offset"]),
        attempt=int(told["attempt"]),
        first_enqueued=int(told["first-enqueued"]),
        group=told["group-id"],
        hold=hold,
    )


def cause(error: BaseException) -> str:
    """What went wrong, as the reason of a failure."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def delay_of(seconds: float | None, seconds_max: int = DELAY_S_MAX) -> tuple[tuple[str, str], ...]:
    """The user property that says so, rounded up to milliseconds; none where nothing is said.

    Raises:
        TypeError, ValueError: as `check_seconds`.
    """
    if seconds is None:
        return ()
    check_seconds(DELAY, seconds, seconds_max)
    return ((DELAY, f"{math.ceil(seconds * 1000)}ms"),)


def check_seconds(what: str, seconds: float, seconds_max: int) -> None:
    """Refuses what is no time that a broker takes.

    Raises:
        TypeError: it is no number.
        ValueError: out of range.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{what} is a number of seconds; got {seconds!r}")
    if not 0 <= seconds <= seconds_max:
        raise ValueError(f"{what} is a number of seconds from 0 to {seconds_max}; got {seconds!r}")


def reason_of(reason: str | None) -> tuple[tuple[str, str], ...]:
    """The user property that says so; none where nothing is said."""
    if not reason:
        return ()
    # A client may end its connection over a control character (MQTT 5.0 1.5.4), as mosquitto's do.
    text = " ".join(reason.split())[:_REASON_CHARACTERS_MAX]
    return (("reason", "".join(each if each.isprintable() else "?" for each in text)),)
