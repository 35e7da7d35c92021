"""What the HTTP door may ask of a node about consumer groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.kernel.groups.reset import Target


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in a list; `lag` in records, of the partitions that it has committed in."""

    group: str
    state: str
    members: int
    partitions: int
    lag: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member: its id, its own name where it is static, its client's name, its address."""

    member: str
    instance: str | None
    client: str
    host: str


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """How far a group has read one partition, and who reads it.

    `committed` and `lag` are None where nothing was committed, `member` where nobody reads.
    """

    stream: str
    partition: int
    committed: int | None
    end: int
    lag: int | None
    member: str | None


@dataclass(frozen=True, slots=True)
class GroupReport:
    """All of a group."""

    group: str
    state: str
    generation: int
    protocol: str
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupMove:
    """Where a group stands in one partition, and where it is sent."""

    stream: str
    partition: int
    committed: int | None
    to: int


class Groups(Protocol):
    """Consumer groups of a node."""

    def page(self, start: str, count_max: int) -> tuple[list[GroupSummary], str | None]:
        """A page of groups by name, from `start` on, and where the next begins."""
        ...

    def describe(self, group: str) -> GroupReport:
        """One group.

        Raises:
            UnknownGroupError: there is none.
        """
        ...

    async def reset(
        self, group: str, target: Target, streams: Sequence[str], *, execute: bool
    ) -> list[GroupMove]:
        """Sends a group elsewhere, in these streams or in all that it has committed in.

        Without `execute` it only tells where. On return it is durable.

        Raises:
            UnknownGroupError: it has committed nothing, and no stream is named.
            UnknownStreamError: there is no stream of a name.
            GroupInUseError: it has members.
            UnavailableError: the disk refused.
        """
        ...

    async def delete(self, group: str) -> None:
        """Forgets a group and what it has committed, for good.

        Raises:
            UnknownGroupError: there is none.
            GroupInUseError: it has members.
            UnavailableError: the disk refused.
        """
        ...
