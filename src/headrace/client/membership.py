"""A member of a consumer group, as the member sees itself. A machine without I/O.

Owns: when to join, what to bring, when to beat, what the program must give up and what it gets.
Must not know: sockets, threads, clocks: `now` is in seconds of whoever asks.

```
OUT ──► JOINING ──► (leader: COUNTING) ──► SYNCING ──► STABLE ──► GIVING ──► JOINING
 ▲          │ refused: back-off                          │ fenced, or the program is stuck
 └──────────┴────────────────────────────────────────────┘  what it had is lost
```

Invariants: it joins with nothing that the program has not given up (`Gave`), but for what it keeps
as cooperative assignors let it; it beats in STABLE and GIVING, whatever the program does, until the
program has been busy for `max_poll_interval_ms`: then it leaves. One request is under way, and
beside it no heartbeat.

Source: Kafka protocol guide, "Group Membership API"; KIP-62, KIP-345, KIP-394, KIP-429.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from headrace.client.assignors import (
    ASSIGNORS,
    COOPERATIVE,
    Having,
    assigned,
    assignment_of,
    heard,
    said,
)
from headrace.client.errors import RequestError, error_of
from headrace.client.membership_events import (
    Answered,
    Close,
    Count,
    Counted,
    Done,
    Failed,
    Find,
    Found,
    Gave,
    Get,
    Give,
    Send,
    Subscribed,
    Tell,
    Tick,
)
from headrace.client.offsets import Identity
from headrace.errors import MalformedError
from headrace.wire.kafka.apis import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.members import (
    CONSUMER,
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    LeaveGroupMember,
    LeaveGroupRequest,
    SyncGroupAssignment,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.client.config import ConsumerConfig
    from headrace.client.errors import ClientError
    from headrace.client.membership_events import Effect, Event
    from headrace.client.records import TopicPartition
    from headrace.wire.kafka.members import (
        JoinGroupResponse,
        SyncGroupResponse,
    )

JOIN_SLACK_SECONDS: Final = 5.0
"""How much longer than the rebalance may take its answer is waited for (Kafka's client does so)."""


class State(Enum):
    """Where a member stands."""

    OUT = auto()
    JOINING = auto()
    COUNTING = auto()
    SYNCING = auto()
    STABLE = auto()
    GIVING = auto()
    CLOSED = auto()


_IN: Final = frozenset({State.STABLE, State.GIVING})
_BETWEEN: Final = frozenset({State.JOINING, State.COUNTING, State.SYNCING})
_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class Membership:
    """One member of the group `config.group_id`.

    Attributes:
        state: where it stands.
        identity: who it is to the coordinator; none while it is out.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        assert config.group_id is not None
        self._config = config
        self._group = config.group_id
        self._is_cooperative = COOPERATIVE.issuperset(config.partition_assignment_strategy)
        self._counts: Mapping[str, int] | None = None
        self._member = ""
        self._generation = -1
        self._protocol = ""
        self._members: dict[str, tuple[bytes, str | None]] = {}  # of the group, if it leads
        self._led: Mapping[str, int] | None = None  # partitions that it has shared out
        self._owned: list[TopicPartition] = []
        self._previous = Having()
        self._gives = 0
        self._is_giving = False
        self._must_join = False
        self._owes = -1  # generation that ends once it has given up and joins again
        self._has_coordinator = self._is_finding = self._is_asking = False
        self._beat_at = 0.0
        self._seen_at = 0.0
        self._blocked_until = 0.0
        self._failures = 0
        self._is_stuck = False
        self.state = State.OUT
        self._on: dict[type, Callable[[Any, float], list[Effect]]] = {
            Subscribed: self._subscribed,
            Tick: self._tick,
            Found: self._found,
            Answered: self._answered,
            Failed: lambda event, now: self._failed(event.error, now),
            Counted: self._counted,
            Gave: self._gave,
            Close: self._close,
        }

    @property
    def identity(self) -> Identity:
        """Who it is when it commits."""
        if self._generation >= 0:
            return Identity(self._generation, self._member, self._config.group_instance_id)
        return Identity(-1, self._member, self._config.group_instance_id)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """What follows from an event."""
        if self.state is State.CLOSED:
            is_end = self._is_asking and isinstance(event, Answered | Failed)
            self._is_asking = self._is_asking and not is_end
            return [Done()] if is_end else []
        return self._on[type(event)](event, now)

    def _found(self, _: Found, now: float) -> list[Effect]:
        self._is_finding, self._has_coordinator = False, True
        return self._go_on(now)

    def _gave(self, event: Gave, now: float) -> list[Effect]:
        if event.number == self._gives:
            self._is_giving = self._is_stuck = False
        return self._go_on(now)

    def wake_at(self, now: float) -> float:
        """When to tick, if nothing happens before: twice a heartbeat for whether it is stuck."""
        soon = now + self._config.heartbeat_interval_ms / 2000
        due = self._blocked_until if self._blocked_until > now else soon
        if self.state in _IN and self._beat_at > now:
            due = min(due, self._beat_at)
        return min(soon, due)

    # --- joining --------------------------------------------------------------------------------

    def _subscribed(self, event: Subscribed, now: float) -> list[Effect]:
        """Other streams, or as the leader other partitions, need another generation."""
        counts = event.counts
        is_other = self._counts is None or self._counts.keys() != counts.keys()
        self._counts = dict(counts)
        has_grown = self._led is not None and any(
            counts.get(topic, count) != count for topic, count in self._led.items()
        )
        if self.state in _IN and (is_other or has_grown):
            self._must_join = True
        return self._go_on(now)

    def _go_on(self, now: float) -> list[Effect]:
        """The next step, if one can be taken now."""
        if self._counts is None or now < self._blocked_until or self._is_asking or self._is_stuck:
            return []
        if not self._has_coordinator:
            is_new, self._is_finding = not self._is_finding, True
            return [Find()] if is_new else []
        if self.state is State.STABLE and self._must_join:
            return self._prepare(now)
        if self.state in {State.OUT, State.GIVING} and not self._is_giving:
            return [self._join()]
        if self.state in _IN and now >= self._beat_at:
            return [self._beat(now)]
        return []

    def _prepare(self, now: float) -> list[Effect]:
        """Before it joins again the program gives up what others may get."""
        self.state = State.GIVING
        if self._is_cooperative or not self._owned or self._is_giving:
            return self._go_on(now)
        return [self._give(self._owned, is_lost=False)]

    def _give(self, places: list[TopicPartition], *, is_lost: bool) -> Give:
        self._gives += 1
        self._is_giving = True
        self._owned = [place for place in self._owned if place not in places]
        return Give(self._gives, places, is_lost, self.identity)

    def _join(self) -> Send:
        assert self._counts is not None
        self.state = State.JOINING
        self._must_join, self._is_asking = False, True
        self._led = None
        config, topics = self._config, sorted(self._counts)
        owned = Having(tuple(self._owned), self._generation if self._owned else -1)
        return Send(
            JOIN_GROUP,
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.max_poll_interval_ms,
                member_id=self._member,
                group_instance_id=config.group_instance_id,
                protocol_type=CONSUMER,
                protocols=[
                    JoinGroupProtocol(name=name, metadata=said(name, topics, owned, self._previous))
                    for name in config.partition_assignment_strategy
                ],
            ),
            config.max_poll_interval_ms / 1000 + JOIN_SLACK_SECONDS,
        )

    def _answered(self, event: Answered, now: float) -> list[Effect]:
        self._is_asking = False
        response = event.response
        code = ErrorCode.of(response.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = response.member_id
            return [self._join()]
        if code != ErrorCode.NONE:
            return self._refused(code, now)
        self._failures = 0
        self._seen_at = now
        if self.state is State.JOINING:
            return self._joined(response)
        if self.state is State.SYNCING:
            return self._synced(response, now)
        self._beat_at = now + self._config.heartbeat_interval_ms / 1000
        return self._go_on(now)

    def _joined(self, response: JoinGroupResponse) -> list[Effect]:
        self._member, self._generation = response.member_id, response.generation_id
        self._protocol = response.protocol_name
        if response.leader != response.member_id:
            return [self._sync([])]
        self._members = {
            each.member_id: (each.metadata, each.group_instance_id) for each in response.members
        }
        self.state = State.COUNTING
        try:
            topics = {topic for m in self._heard().values() for topic in m.topics}
        except MalformedError as error:
            what = f"group {self._group}: a member says what cannot be read: {error}"
            return self._told(RequestError(what, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return [Count(sorted(topics))]

    def _heard(self) -> dict[str, Any]:
        return {
            name: heard(self._protocol, metadata, instance)
            for name, (metadata, instance) in self._members.items()
        }

    def _counted(self, event: Counted, _: float) -> list[Effect]:
        """The leader shares out."""
        if self.state is not State.COUNTING:
            return []
        self._led = dict(event.counts)
        shares = ASSIGNORS[self._protocol](self._heard(), event.counts)
        return [
            self._sync(
                [
                    SyncGroupAssignment(member_id=member, assignment=assignment_of(places))
                    for member, places in shares.items()
                ]
            )
        ]

    def _sync(self, assignments: list[SyncGroupAssignment]) -> Send:
        self.state = State.SYNCING
        self._is_asking = True
        return Send(
            SYNC_GROUP,
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member,
                group_instance_id=self._config.group_instance_id,
                assignments=assignments,
            ),
            self._config.max_poll_interval_ms / 1000 + JOIN_SLACK_SECONDS,
        )

    def _synced(self, response: SyncGroupResponse, now: float) -> list[Effect]:
        try:
            gets = assigned(response.assignment)
        except MalformedError as error:
            what = f"group {self._group}: its leader assigns what cannot be read: {error}"
            return self._told(RequestError(what, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        self.state = State.STABLE
        self._beat_at = now + self._config.heartbeat_interval_ms / 1000
        self._previous = Having(tuple(gets), self._generation)
        revoked = [place for place in self._owned if place not in gets]
        effects: list[Effect] = []
        if revoked:  # of a cooperative member: once it has given them up others get them
            effects.append(self._give(revoked, is_lost=False))
            self._owes = self._generation
            self._must_join = True
            self.state = State.GIVING
        elif self._owes == self._generation:  # it came back as the static member that it was
            self._must_join = True
        self._owned = gets
        return [*effects, Get(gets, self.identity)]

    # --- staying --------------------------------------------------------------------------------

    def _tick(self, event: Tick, now: float) -> list[Effect]:
        most_s = self._config.max_poll_interval_ms / 1000
        is_in = self.state in _IN and self._generation >= 0
        if is_in and event.busy_s >= most_s and not self._is_asking:
            self._is_stuck = True
            return [*self._lose(), *self._leave()]
        if is_in and now >= self._seen_at + self._config.session_timeout_ms / 1000:
            return [*self._lose(), *self._go_on(now)]  # the group goes on without it
        return self._go_on(now)

    def _beat(self, now: float) -> Send:
        self._is_asking = True
        self._beat_at = now + self._config.heartbeat_interval_ms / 1000
        return Send(
            HEARTBEAT,
            HeartbeatRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member,
                group_instance_id=self._config.group_instance_id,
            ),
        )

    # --- what goes wrong ------------------------------------------------------------------------

    def _refused(self, code: ErrorCode, now: float) -> list[Effect]:
        error = error_of(code, f"group {self._group}")
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return self._rebalance(now)
        if code in _FENCED:
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member = ""
            return [*self._lose(), *self._go_on(now)]
        return self._failed(error, now)

    def _rebalance(self, now: float) -> list[Effect]:
        self._seen_at = now  # the coordinator knows it, and waits
        if self.state is State.STABLE:
            self._must_join = True
        elif self.state in _BETWEEN:  # another generation has begun meanwhile
            self._step_back()
        return self._go_on(now)

    def _failed(self, error: ClientError, now: float) -> list[Effect]:
        self._is_asking = self._is_finding = False
        self._failures += 1
        self._blocked_until = now + self._config.backoff_s(self._failures)
        if not error.retriable:
            return self._told(error)
        if error.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._has_coordinator = False
        if self.state in _BETWEEN:
            self._step_back()
        return []

    def _step_back(self) -> None:
        """To join once more; a cooperative member keeps what it has meanwhile."""
        self.state = State.GIVING if self._owned else State.OUT

    def _lose(self) -> list[Effect]:
        """What it had others may have by now."""
        self._generation = -1
        self.state = State.OUT
        self._must_join = False
        self._led = None
        if not (self._owned or self._is_stuck):
            return []
        return [self._give(self._owned, is_lost=True)]

    def _told(self, error: ClientError) -> list[Effect]:
        self._is_stuck = True  # until the program asks again
        if error.code == ErrorCode.FENCED_INSTANCE_ID:
            self._member = ""
        return [*self._lose(), Tell(error)]

    def _leave(self) -> list[Effect]:
        """Says goodbye; who has a name that stays comes back instead (KIP-345)."""
        member, self._member = self._member, ""
        if not member or self._config.group_instance_id is not None or not self._has_coordinator:
            return []
        self._is_asking = True
        members = [LeaveGroupMember(member_id=member)]
        body = LeaveGroupRequest(group_id=self._group, member_id=member, members=members)
        return [Send(LEAVE_GROUP, body)]

    def _close(self, _: Close, __: float) -> list[Effect]:
        self.state = State.CLOSED
        self._is_asking = False
        return self._leave() or [Done()]
