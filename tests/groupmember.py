"""A member of a group, in each of the clients that people use: reads, notes, commits.

As a program it is a member of its own process, which a test can kill:
`python groupmember.py LIBRARY STRATEGY SERVERS GROUP STREAM FILE [INSTANCE]`.
"""

import asyncio
import contextlib
import sys
import threading
from pathlib import Path

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioSticky,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

SESSION_MS, HEARTBEAT_MS, POLL_MS = 6000, 300, 200

STRATEGIES = {
    "confluent-kafka": {name: name for name in ("range", "roundrobin", "cooperative-sticky")},
    "kafka-python": {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    },
    "aiokafka": {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky},
}


class Member(threading.Thread):
    """A thread that reads until it is told to stop.

    Attributes:
        values: what it has read, in that order.
    """

    def __init__(self, library, strategy, servers, group, stream, instance=None, note=None):
        super().__init__(daemon=True)
        self.strategy = STRATEGIES[library][strategy]
        self.servers, self.group, self.stream, self.instance = servers, group, stream, instance
        self.values = []
        self.note = note or self.values.extend
        self.stopping = threading.Event()
        self.read = {
            "confluent-kafka": self.read_confluent,
            "kafka-python": self.read_kafka,
            "aiokafka": lambda: asyncio.run(self.read_aiokafka()),
        }[library]
        self.fault = None
        self.start()

    def run(self):
        try:
            self.read()
        except Exception as error:  # noqa: BLE001 - the test shows it
            self.fault = error

    def stop(self):
        """Leaves in order; a static member stays in the group."""
        self.stopping.set()
        self.join(60)
        assert not self.is_alive(), "it did not leave"
        if self.fault is not None:
            raise self.fault

    def read_confluent(self):
        settings = {
            "bootstrap.servers": self.servers,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": self.strategy,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "error_cb": lambda _: None,
        }
        settings |= {"group.instance.id": self.instance} if self.instance else {}
        consumer = confluent_kafka.Consumer(settings, logger=None)
        consumer.subscribe([self.stream])
        try:
            while not self.stopping.is_set():
                messages = consumer.consume(100, POLL_MS / 1000)
                self.note([each.value() for each in messages if each.error() is None])
                if messages:
                    with contextlib.suppress(confluent_kafka.KafkaException):  # no longer its own
                        consumer.commit(asynchronous=False)
        finally:
            consumer.close()

    def read_kafka(self):
        consumer = kafka.KafkaConsumer(
            self.stream,
            bootstrap_servers=self.servers,
            group_id=self.group,
            group_instance_id=self.instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[self.strategy],
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        try:
            while not self.stopping.is_set():
                batches = consumer.poll(POLL_MS)
                self.note([each.value for batch in batches.values() for each in batch])
                if batches:
                    with contextlib.suppress(kafka.errors.CommitFailedError):
                        consumer.commit()
        finally:
            consumer.close()

    async def read_aiokafka(self):
        consumer = aiokafka.AIOKafkaConsumer(
            self.stream,
            bootstrap_servers=self.servers,
            group_id=self.group,
            group_instance_id=self.instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[self.strategy],
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        lost = (aiokafka.errors.CommitFailedError, aiokafka.errors.IllegalStateError)
        await consumer.start()
        try:
            while not self.stopping.is_set():
                batches = await consumer.getmany(timeout_ms=POLL_MS)
                self.note([each.value for batch in batches.values() for each in batch])
                if batches:
                    with contextlib.suppress(*lost):
                        await consumer.commit()
        finally:
            await consumer.stop()


def main():
    library, strategy, servers, group, stream, file, *instance = sys.argv[1:]
    with Path(file).open("ab", buffering=0) as out:

        def note(values):
            out.write(b"".join(value + b"\n" for value in values))

        member = Member(library, strategy, servers, group, stream, *instance, note=note)
        member.join()
        if member.fault is not None:
            raise member.fault


if __name__ == "__main__":
    main()
