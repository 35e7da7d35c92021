"""Bounds of consumer groups: members, and the offsets that they commit."""

from typing import Final

from headrace.limits.units import DAY_MS, MIB

OFFSETS_MAX: Final = 1_000_000
"""Committed offsets of all groups together, at about 300 bytes each: clients choose group names,
so it is bounded. Beyond it a commit for a new partition is refused (POLICY_VIOLATION)."""

OFFSETS_OWNED_MAX: Final = OFFSETS_MAX // 4
"""Of those, in the groups of one owner: a user, or an address without one."""

GROUP_ID_BYTES_MAX: Final = 255
"""Length of a group's name, and of what its members are (`consumer`). The protocol allows 32 KiB,
which nobody means."""

GROUPS_MAX: Final = 10_000
"""Consumer groups with members, or that had some not long ago: a client may name one with each
request. Groups that only keep offsets are bounded by `OFFSETS_MAX`."""

GROUPS_OWNED_MAX: Final = GROUPS_MAX // 4
"""Of those, made by one owner: a user, or an address without one. A fourth, so that one client
cannot shut all others out, and who is alone on a machine has thousands."""

GROUP_SIZE_MAX: Final = 1_000
"""Members of one group (setting `kafka.group_max_size`, Kafka's `group.max.size`): each generation
tells all of them to one of them, and no stream has more than `STREAM_PARTITIONS_MAX` partitions."""

GROUP_RECORD_BYTES_MAX: Final = MIB
"""What the members of one group say of themselves, and what they are assigned: it is one record of
`__offsets`, which takes `MESSAGE_BYTES_MAX`. A thousand members with a topic each take 300 KB."""

GROUP_HELD_BYTES_MAX: Final = 4 * MIB
"""Members of one group in memory, with all that they say: four ways to share out, where all of them
say as much as a record takes."""

GROUP_PROTOCOLS_MAX: Final = 100
"""Ways to share out that one member may know: clients know one to four, and each is counted."""

GROUPS_BYTES_MAX: Final = 256 * MIB
"""Members of all groups in memory, with what they say and are assigned: a hundred thousand of them
with two ways to share out and ten topics each."""

GROUPS_OWNED_BYTES_MAX: Final = GROUPS_BYTES_MAX // 4
"""Of those, in the groups of one owner: sixteen groups as large as one may be."""

GROUP_INITIAL_DELAY_MS: Final = 300
"""How long the first generation of a group waits for more members (setting
`kafka.group_initial_rebalance_delay`). Kafka waits 3 s, as for consumers that start by the dozen;
one that is alone, as most are, has its partitions ten times as soon."""

GROUP_SESSION_MS_MIN: Final = 6_000
"""Shortest session timeout of a member, Kafka's own (`group.min.session.timeout.ms`)."""

GROUP_SESSION_MS_MAX: Final = 1_800_000
"""Longest session timeout of a member, Kafka's own (`group.max.session.timeout.ms`)."""

OFFSETS_METADATA_BYTES_MAX: Final = 64 * MIB
"""Texts beside all committed offsets together: a million of them with `OFFSET_METADATA_BYTES_MAX`
each would be 4 GB. Clients leave it empty, or write a few words. Beyond it a commit that brings
more is refused (POLICY_VIOLATION)."""

OFFSETS_METADATA_OWNED_BYTES_MAX: Final = OFFSETS_METADATA_BYTES_MAX // 4
"""Of those, beside the offsets of one owner."""

OFFSETS_RETENTION_MS: Final = 7 * DAY_MS
"""How long committed offsets outlive the last member of their group, Kafka's own
(`offsets.retention.minutes`)."""

OFFSETS_CHECK_MS: Final = 600_000
"""How often offsets are looked at that may have been kept long enough, Kafka's own
(`offsets.retention.check.interval.ms`)."""

OFFSETS_CHECKED_AT_ONCE: Final = 5_000
"""Of those, in one go of the event loop: some 2 ms."""

GROUP_LAGS_MAX: Final = 10_000
"""Partitions of groups whose lag a scrape shows: about 1 MB of text and 20 ms."""

OFFSET_METADATA_BYTES_MAX: Final = 4096
"""Text that a client may keep beside a committed offset (`offset.metadata.max.bytes`)."""
