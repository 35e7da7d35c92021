"""What goes into the machine of a membership and what comes out. Values without behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.client.errors import ClientError
    from headrace.client.offsets import Identity
    from headrace.client.records import TopicPartition
    from headrace.wire.kafka.apis import Api

# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The program wants to read these streams, which have so many partitions now."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes. `busy_s` is how long the program has not asked for records; 0 while it waits."""

    busy_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """The coordinator is known."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to the request that was under way."""

    response: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """Instead of an answer: no broker is reached, or one refuses whatever is asked."""

    error: ClientError


@dataclass(frozen=True, slots=True)
class Counted:
    """Partitions of the streams that were asked for; one that nobody knows is absent."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Gave:
    """The program has given up what `Give` of this number told it to."""

    number: int


@dataclass(frozen=True, slots=True)
class Close:
    """The program ends; it has given up everything."""


Event: TypeAlias = Subscribed | Tick | Found | Answered | Failed | Counted | Gave | Close

# --- effects -------------------------------------------------------------------------------------


class Find(NamedTuple):
    """Ask who the coordinator is: `Found` or `Failed`."""


class Send(NamedTuple):
    """Ask the coordinator: `Answered` or `Failed`, within `timeout_s` if that is not None."""

    api: Api[Any, Any]
    body: Any
    timeout_s: float | None = None


class Count(NamedTuple):
    """Ask how many partitions streams have: `Counted` or `Failed`."""

    topics: list[str]


class Give(NamedTuple):
    """The program must give these up, commit as `identity`, and say `Gave`.

    If lost, others may have them already, and what earlier ones named.
    """

    number: int
    places: list[TopicPartition]
    is_lost: bool
    identity: Identity


class Get(NamedTuple):
    """The program reads these, and no others, and commits as `identity`."""

    places: list[TopicPartition]
    identity: Identity


class Tell(NamedTuple):
    """The program must hear of this error; the member is out until it asks for records again."""

    error: ClientError


class Done(NamedTuple):
    """The member is gone."""


Effect: TypeAlias = Find | Send | Count | Give | Get | Tell | Done
