"""What a node needs from outside, as Protocols; no implementations.

`adapters` and the compiled store satisfy them on a real machine, a simulation on a virtual one.
"""

from headrace.ports.access import AclStore, Gatekeeper, UserStore
from headrace.ports.administration import Administration, NodeState, Published
from headrace.ports.clients import Clients, Origin, PartitionReading, StreamReading, Trace
from headrace.ports.clock import Clock
from headrace.ports.definitions import Definitions
from headrace.ports.groups import (
    GroupMember,
    GroupMove,
    GroupPartition,
    GroupReport,
    Groups,
    GroupSummary,
)
from headrace.ports.meter import Histogram, Sample
from headrace.ports.queue_messages import (
    Peek,
    PeekedMessage,
    PeekedMessages,
    Pull,
    Pulling,
    QueueMessage,
    Settlement,
)
from headrace.ports.queues import (
    QueueConsumer,
    QueueGroupReport,
    QueuePartition,
    QueueReport,
    Queues,
)
from headrace.ports.store import Store
from headrace.ports.streams import PartitionReport, StreamReport
from headrace.ports.transport import Door, Link, Listener, MeteredDoor, Receiver

__all__ = [
    "AclStore",
    "Administration",
    "Clients",
    "Clock",
    "Definitions",
    "Door",
    "Gatekeeper",
    "GroupMember",
    "GroupMove",
    "GroupPartition",
    "GroupReport",
    "GroupSummary",
    "Groups",
    "Histogram",
    "Link",
    "Listener",
    "MeteredDoor",
    "NodeState",
    "Origin",
    "PartitionReading",
    "PartitionReport",
    "Peek",
    "PeekedMessage",
    "PeekedMessages",
    "Published",
    "Pull",
    "Pulling",
    "QueueConsumer",
    "QueueGroupReport",
    "QueueMessage",
    "QueuePartition",
    "QueueReport",
    "Queues",
    "Receiver",
    "Sample",
    "Settlement",
    "Store",
    "StreamReading",
    "StreamReport",
    "Trace",
    "UserStore",
]
