"""How the leader of a group shares partitions out: range, roundrobin, sticky, cooperative-sticky.

Owns: pure functions of what members want and have, and what members say of themselves to each
other. Must not know: brokers, generations as they go. The results of range and roundrobin are those
of Kafka's own assignors, for members of one group may be of several makes and any may lead.

Source: Kafka's documentation of its assignors; KIP-54 (sticky), KIP-429 (cooperative), KIP-341 and
KIP-792 for what members say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.client.records import TopicPartition
from headrace.errors import MalformedError
from headrace.wire.kafka.codec import Int32, decode, encode, message
from headrace.wire.kafka.members import (
    ConsumerAssignment,
    ConsumerSubscription,
    TopicPartitions,
    consumers,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

STICKY: Final = "sticky"
COOPERATIVE: Final = frozenset({"cooperative-sticky"})
"""Assignors whose members keep what they have until somebody else is to get it."""

SUBSCRIPTION_VERSION: Final = 2
"""What members say: owned partitions came with 1, their generation with 2."""


class Member(NamedTuple):
    """What a member wants, and what it says it has.

    Attributes:
        topics: streams it subscribes to.
        owned: what it reads already, or read last.
        generation: of the group when it got that; -1 where it does not say.
        instance: its name that stays, where it has one.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance: str | None = None


Members = Mapping[str, Member]
Counts = Mapping[str, int]
"""Partitions of each stream; a stream that nobody knows is absent."""

Assignment = dict[str, list[TopicPartition]]
Assignor = Callable[[Members, Counts], Assignment]


def assign_range(members: Members, counts: Counts) -> Assignment:
    """Of each stream every member gets a run of partitions, the first members one more."""
    assignment: Assignment = {member: [] for member in members}
    for topic, wanting in sorted(_wanting(members, counts).items()):
        each, more = divmod(counts[topic], len(wanting))
        first = 0
        for turn, member in enumerate(wanting):
            last = first + each + (turn < more)
            assignment[member] += [TopicPartition(topic, p) for p in range(first, last)]
            first = last
    return assignment


def assign_roundrobin(members: Members, counts: Counts) -> Assignment:
    """All partitions of all streams go around the members that want them."""
    assignment: Assignment = {member: [] for member in members}
    around = _in_order(members)
    turn = 0
    for topic in sorted(_wanting(members, counts)):
        for partition in range(counts[topic]):
            while topic not in members[around[turn % len(around)]].topics:
                turn += 1
            assignment[around[turn % len(around)]].append(TopicPartition(topic, partition))
            turn += 1
    return assignment


def assign_sticky(members: Members, counts: Counts) -> Assignment:
    """As even as subscriptions allow; what a member has it keeps, unless another has too little.

    No partition could move to a member that has two fewer.
    """
    owners = _owners(members, counts)
    return _Balance(members, counts, owners).assignment()


def assign_cooperative(members: Members, counts: Counts) -> Assignment:
    """As sticky, in two steps: what one is to get from another it gets once that gave it up."""
    owners = _owners(members, counts)
    goal = _Balance(members, counts, owners).assignment()
    return {
        member: [place for place in places if owners.get(place, member) == member]
        for member, places in goal.items()
    }


ASSIGNORS: Final[dict[str, Assignor]] = {
    "range": assign_range,
    "roundrobin": assign_roundrobin,
    STICKY: assign_sticky,
    "cooperative-sticky": assign_cooperative,
}


def _in_order(members: Members) -> list[str]:
    """Members with a name that stays first, by it, so that restarts move nothing (KIP-345)."""
    return sorted(
        members, key=lambda each: (members[each].instance is None, members[each].instance or each)
    )


def _wanting(members: Members, counts: Counts) -> dict[str, list[str]]:
    """Members that want each stream of which there is a partition, in their order."""
    wanting: defaultdict[str, list[str]] = defaultdict(list)
    for member in _in_order(members):
        for topic in dict.fromkeys(members[member].topics):
            if counts.get(topic, 0):
                wanting[topic].append(member)
    return wanting


def _owners(members: Members, counts: Counts) -> dict[TopicPartition, str]:
    """Who has each partition: the claim of the highest generation, nobody where two have it."""
    claims: defaultdict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    for name, member in members.items():
        for place in member.owned:
            if place.topic in member.topics and place.partition < counts.get(place.topic, 0):
                claims[place].append((member.generation, name))
    owners = {}
    for place, claimed in claims.items():
        newest = max(generation for generation, _ in claimed)
        claimants = [name for generation, name in claimed if generation == newest]
        if len(claimants) == 1:
            owners[place] = claimants[0]
    return owners


class _Balance:
    """Shares out by moving as little as possible."""

    def __init__(
        self, members: Members, counts: Counts, owners: Mapping[TopicPartition, str]
    ) -> None:
        self._owners = owners
        self._wanting = _wanting(members, counts)
        self._order = {member: turn for turn, member in enumerate(_in_order(members))}
        self._has: dict[str, defaultdict[str, list[TopicPartition]]] = {
            member: defaultdict(list) for member in members
        }
        self._count = dict.fromkeys(members, 0)
        for place, member in sorted(owners.items()):
            self._give(place, member)
        self._share_out(counts)
        while self._even_out():
            pass

    def assignment(self) -> Assignment:
        """What every member gets, in order."""
        return {
            member: sorted(place for places in has.values() for place in places)
            for member, has in self._has.items()
        }

    def _give(self, place: TopicPartition, member: str) -> None:
        self._has[member][place.topic].append(place)
        self._count[member] += 1

    def _least(self, topic: str) -> str:
        return min(self._wanting[topic], key=lambda each: (self._count[each], self._order[each]))

    def _share_out(self, counts: Counts) -> None:
        """What nobody has goes to whoever has least; streams that few want come first."""
        for topic in sorted(self._wanting, key=lambda each: (len(self._wanting[each]), each)):
            for partition in range(counts[topic]):
                place = TopicPartition(topic, partition)
                if place not in self._owners:
                    self._give(place, self._least(topic))

    def _even_out(self) -> bool:
        """Moves one partition from who has most of those that can give to who has two fewer."""
        for member in sorted(self._count, key=lambda m: (-self._count[m], self._order[m])):
            for topic, places in sorted(self._has[member].items()):
                if places:
                    least = self._least(topic)
                    if self._count[member] - self._count[least] >= 2:
                        self._move(member, least, places)
                        return True
        return False

    def _move(self, giver: str, taker: str, places: list[TopicPartition]) -> None:
        """One of `places`: what the taker had before, or else what the giver did not."""
        place = min(
            places,
            key=lambda p: (
                self._owners.get(p) != taker,
                self._owners.get(p) == giver,
                -p.partition,
            ),
        )
        places.remove(place)
        self._count[giver] -= 1
        self._give(place, taker)


# --- what members say of themselves -------------------------------------------------------------


@message
class StickyUserData:
    """What a member of the sticky assignor had, in Kafka's own layout."""

    previous: list[TopicPartitions]
    generation: Int32


@dataclass(frozen=True, slots=True)
class Having:
    """What a member has, or had last, and since which generation."""

    places: tuple[TopicPartition, ...] = ()
    generation: int = -1


def said(assignor: str, topics: Sequence[str], owned: Having, previous: Having) -> bytes:
    """The metadata of a member: `owned` it reads now, `previous` it read last."""
    user_data = None
    if assignor == STICKY:
        parts = _by_topic(previous.places)
        user_data = encode(StickyUserData(previous=parts, generation=previous.generation))
    elif assignor in COOPERATIVE:
        user_data = previous.generation.to_bytes(4, "big", signed=True)
    return encode(
        ConsumerSubscription(
            version=SUBSCRIPTION_VERSION,
            topics=list(topics),
            user_data=user_data,
            owned_partitions=_by_topic(owned.places),
            generation_id=owned.generation,
        ),
        SUBSCRIPTION_VERSION,
    )


def heard(assignor: str, metadata: bytes, instance: str | None) -> Member:
    """A member as its metadata tells.

    Raises:
        MalformedError: it is no metadata of a consumer.
    """
    subscription = consumers(ConsumerSubscription, metadata)
    owned, generation = subscription.owned_partitions, subscription.generation_id
    user_data = subscription.user_data or b""
    try:
        if assignor == STICKY and user_data:
            had = decode(StickyUserData, user_data)
            owned, generation = had.previous, had.generation
        elif generation < 0 and assignor in COOPERATIVE and len(user_data) >= 4:
            generation = int.from_bytes(user_data[:4], "big", signed=True)
    except MalformedError:
        pass  # another make's: it keeps nothing, and that is all
    return Member(tuple(subscription.topics), tuple(places_of(owned)), generation, instance)


def assigned(assignment: bytes) -> list[TopicPartition]:
    """What a member may read; no bytes are none.

    Raises:
        MalformedError: it is no assignment.
    """
    if not assignment:
        return []
    return places_of(consumers(ConsumerAssignment, assignment).assigned_partitions)


def assignment_of(places: Collection[TopicPartition]) -> bytes:
    """What tells a member that it may read these."""
    return encode(ConsumerAssignment(version=1, assigned_partitions=_by_topic(places)), 1)


def places_of(parts: Iterable[TopicPartitions]) -> list[TopicPartition]:
    """Partitions one by one."""
    return [TopicPartition(part.topic, each) for part in parts for each in part.partitions]


def _by_topic(places: Iterable[TopicPartition]) -> list[TopicPartitions]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(places):
        topics[topic].append(partition)
    return [TopicPartitions(topic=topic, partitions=each) for topic, each in topics.items()]
