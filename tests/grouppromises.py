"""What must hold of every life of a consumer group, and what was seen of one.

Must not know how a group decides, nor how consumers, the network and the disk behave
(`groupsim`): it is told what clients and the disk are told.
"""

from headrace.wire.kafka.codec import decode
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.members import ConsumerAssignment

RECORDS = 60
"""Of each partition."""


class BrokenError(AssertionError):
    """A promise is broken."""


class Promises:
    """Those of one group. A consumer has a `generation` and an `instance`, which may be None."""

    def __init__(self, partitions):
        self.partitions = partitions
        self.processed = [0] * partitions  # each record below was read by somebody
        self.committed = [0] * partitions
        self.holders = {}  # (generation, partition): consumer
        self.readers = {}  # partition: consumer that was told last to read it
        self.active = 0  # newest generation in which somebody was told what to read
        self.counts = {"assigned": 0, "commits": 0, "fenced": 0, "restarts": 0}

    def told(self, consumer, outcome):
        """A partition has one reader in a generation, or one after another under one instance."""
        if getattr(outcome, "assignment", None) is None or outcome.code is not ErrorCode.NONE:
            return
        self.counts["assigned"] += 1
        self.active = max(self.active, consumer.generation)
        for partition in partitions_of(outcome.assignment):
            before = self.holders.get((consumer.generation, partition))
            if before not in {None, consumer} and (
                before.instance is None or before.instance != consumer.instance
            ):
                raise BrokenError(
                    f"{partition} has two readers in generation {consumer.generation}: "
                    f"{before} and {consumer}"
                )
            self.holders[consumer.generation, partition] = consumer
            self.readers[partition] = consumer

    def read(self, consumer, partition, position, records):
        """No record is skipped."""
        if position > self.processed[partition]:
            raise BrokenError(f"{consumer} skips records of {partition} before {position}")
        self.processed[partition] = max(self.processed[partition], position + records)

    def taken(self, consumer, commit):
        """What the broker takes, it takes from who reads there now."""
        self.counts["commits"] += 1
        if commit.generation < self.active:
            raise BrokenError(
                f"{consumer} commits in generation {commit.generation}, not {self.active}"
            )
        for place in commit.offsets:
            reader = self.readers.get(place.partition)
            if reader is not consumer:
                raise BrokenError(f"{consumer} commits where {reader} reads")

    def kept(self, offsets):
        """What is committed grows, and everything before it was read."""
        for place, committed in offsets.items():
            partition, offset = place.partition, committed.offset
            if offset < self.committed[partition]:
                raise BrokenError(
                    f"{partition} went back from {self.committed[partition]} to {offset}"
                )
            if offset > self.processed[partition]:
                raise BrokenError(f"{partition} is committed at {offset}: not all of that was read")
            self.committed[partition] = offset

    def ended(self, described, alive):
        """The group has come to rest, whatever it went through, and all was read."""
        members = {each.id for each in described.members}
        if alive and (described.state != "Stable" or members != alive):
            raise BrokenError(f"stuck: {described.state} with {members}; alive are {alive}")
        if alive and self.processed != [RECORDS] * self.partitions:
            raise BrokenError(f"not all was read: {self.processed}")
        if alive and self.committed != [RECORDS] * self.partitions:
            raise BrokenError(f"not all was committed: {self.committed}")

    def lasts(self, before, after, group):
        """A restart finds the group as it was."""
        if after.offsets(group) != before.offsets(group):
            raise BrokenError("a restart finds other offsets")
        was, found = before.describe(group), after.describe(group)
        if found.generation != was.generation or ids(found) != ids(was):
            raise BrokenError("a restart finds another generation")


def ids(described):
    return {each.id for each in described.members}


def partitions_of(assignment):
    """What an assignment says."""
    if not assignment:
        return []
    said = decode(ConsumerAssignment, assignment)
    return [index for each in said.assigned_partitions for index in each.partitions]
