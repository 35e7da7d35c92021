"""How the file descriptors of a node are shared out.

Pure arithmetic. Invariant: connections and partitions together never ask for more descriptors
than there are, so neither an accept nor a new segment fails for want of one.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace import limits


@dataclass(frozen=True, slots=True)
class DescriptorBudget:
    """Descriptors that the process may open, and the two settings that bound their use.

    Attributes:
        descriptors: the soft limit after it was raised (`RLIMIT_NOFILE`).
        connections_setting: `limits.connections`.
        partitions_setting: `limits.partitions`.
    """

    descriptors: int
    connections_setting: int = limits.CONNECTIONS_MAX
    partitions_setting: int = limits.PARTITIONS_MAX

    @property
    def partitions_max(self) -> int:
        """Partitions of users' streams: they and the node's own get three quarters at most."""
        share = (self.descriptors - limits.DESCRIPTORS_RESERVED) * 3 // 4
        shared = share // limits.PARTITION_DESCRIPTORS - limits.INTERNAL_PARTITIONS
        return max(min(self.partitions_setting, shared), 0)

    def connections_max(self, partitions: int) -> int:
        """Connections beside this many partitions."""
        left = self.descriptors - limits.DESCRIPTORS_RESERVED
        left -= partitions * limits.PARTITION_DESCRIPTORS
        return max(min(self.connections_setting, left), 0)

    def describe(self, partitions: int) -> str:
        """The line that start-up prints."""
        files = partitions * limits.PARTITION_DESCRIPTORS
        return (
            f"descriptors: {self.descriptors}, of which {self.connections_max(partitions)} for "
            f"connections, {files} for {partitions} partitions, {limits.DESCRIPTORS_RESERVED} for "
            f"the node itself"
        )
