"""What goes into the machine of consumer groups and what comes out. Values without behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace import limits
from headrace.kernel.groups.owners import NOBODY
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.kernel.keyed import Record

NO_GENERATION: Final = -1
"""What a client without membership commits under."""


class Now(NamedTuple):
    """The moment of an event.

    Attributes:
        mono_ms: for deadlines; never goes back.
        wall_ms: for what is kept, and for what is kept too long.
    """

    mono_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What a node is told about groups; times in milliseconds.

    Attributes:
        initial_delay_ms: how long the first generation of a group waits for further members.
        session_ms_min, session_ms_max: session timeouts that members may ask for.
        size_max: members of one group.
        retention_ms: how long offsets outlive their group's last member.
    """

    initial_delay_ms: int = limits.GROUP_INITIAL_DELAY_MS
    session_ms_min: int = limits.GROUP_SESSION_MS_MIN
    session_ms_max: int = limits.GROUP_SESSION_MS_MAX
    size_max: int = limits.GROUP_SIZE_MAX
    retention_ms: int = limits.OFFSETS_RETENTION_MS


class Place(NamedTuple):
    """One partition of one stream."""

    stream: str
    partition: int


class Committed(NamedTuple):
    """How far a group has read one partition: the offset that it wants next."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = 0


class Identity(NamedTuple):
    """Who a member says it is: the id that it was given, and its own where it is static."""

    member: str = ""
    instance: str | None = None


# --- events --------------------------------------------------------------------------------------


class Join(NamedTuple):
    """A client wants into the next generation.

    Attributes:
        fresh_id: the member id that it gets if it has none; never given twice.
        must_know_id: whether it must come back with that id before it counts.
        protocols: name and metadata of each, the one that it likes best first.
        owner: to whom the group counts if this makes it (`headrace.kernel.groups.owners`).
    """

    ticket: int
    group: str
    who: Identity
    client_id: str
    host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    fresh_id: str
    must_know_id: bool = False
    owner: str = NOBODY


class Sync(NamedTuple):
    """A member asks for its assignment; the leader brings those of all."""

    ticket: int
    group: str
    who: Identity
    generation: int
    assignments: Mapping[str, bytes]


class Heartbeat(NamedTuple):
    """A member is alive."""

    ticket: int
    group: str
    who: Identity
    generation: int


class Leave(NamedTuple):
    """Members leave."""

    ticket: int
    group: str
    who: tuple[Identity, ...]


class Commit(NamedTuple):
    """A client commits; every place of `offsets` is known to exist.

    Attributes:
        owner: to whom they count if nobody is in the group, nor has committed in it.
    """

    ticket: int
    group: str
    who: Identity
    generation: int
    offsets: Mapping[Place, Committed]
    owner: str = NOBODY


class DeleteOffsets(NamedTuple):
    """An operator has a group forget how far it has read these."""

    ticket: int
    group: str
    places: frozenset[Place]


class DeleteGroup(NamedTuple):
    """An operator has a group forgotten."""

    ticket: int
    group: str


class Forgotten(NamedTuple):
    """Whoever asked has gone: the ticket is answered no more."""

    ticket: int
    group: str


class Stored(NamedTuple):
    """The records of a ticket are durable."""

    ticket: int
    group: str


class Refused(NamedTuple):
    """The records of a ticket could not be stored, and never will be."""

    ticket: int
    group: str
    code: ErrorCode


class Replayed(NamedTuple):
    """A record read back while the node starts, in the order in which it was appended."""

    record: Record


class Opened(NamedTuple):
    """All records are read back: members have one session from now to show themselves."""


class Configured(NamedTuple):
    """Other settings hold from now on."""

    settings: GroupSettings


class StreamDeleted(NamedTuple):
    """A stream is gone; a later one of its name begins without offsets."""

    stream: str


class Tick(NamedTuple):
    """A deadline may have passed."""


Request = Join | Sync | Heartbeat | Leave | Commit | DeleteOffsets | DeleteGroup
Told = Forgotten | Stored | Refused | Replayed | Opened | Configured | StreamDeleted | Tick
Event = Request | Told


# --- effects -------------------------------------------------------------------------------------


class Append(NamedTuple):
    """Make these records of `group` durable, then hand `Stored` or `Refused` back.

    Those of one group last in the order in which they were appended. Without a ticket nobody
    waits: the event that caused it comes again after the next start.
    """

    ticket: int | None
    group: str
    records: list[Record]


class Joined(NamedTuple):
    """The end of a `Join`; `members` only for the leader: identity and metadata."""

    code: ErrorCode
    member: str
    generation: int = NO_GENERATION
    protocol: str = ""
    leader: str = ""
    members: tuple[tuple[Identity, bytes], ...] = ()


class Synced(NamedTuple):
    """The end of a `Sync`."""

    code: ErrorCode
    assignment: bytes = b""


class Left(NamedTuple):
    """The end of a `Leave`, for each who left."""

    codes: tuple[tuple[Identity, ErrorCode], ...]


class Codes(NamedTuple):
    """The end of a `Commit` or `DeleteOffsets`, for each of its places."""

    codes: Mapping[Place, ErrorCode]


Outcome = Joined | Synced | Left | Codes | ErrorCode


def codes_of(outcome: Outcome) -> list[ErrorCode]:
    """What somebody is told of each thing that they asked for."""
    match outcome:
        case ErrorCode():
            return [outcome]
        case Joined() | Synced():
            return [outcome.code]
        case Left(codes):
            return [code for _, code in codes]
        case Codes(codes):
            return list(codes.values())


class Answer(NamedTuple):
    """The end of a request: of each ticket that was not forgotten, exactly one."""

    ticket: int
    outcome: Outcome


Effect = Append | Answer
