"""Bounds of the node's own streams, and of the states that are kept beside logs."""

from typing import Final

from headrace.limits.units import MIB

OFFSETS_PARTITIONS: Final = 16
"""Partitions of `__offsets`. A group lives in the one that its name hashes to, so the number
never changes; 16 let the groups of a node spread over a cluster later."""

RETAINED_PARTITIONS: Final = 8
"""Partitions of `__retained`. A topic lives in the one that it hashes to, so the number never
changes; each is read and kept as a whole, 35 MB of a million messages."""

RETAINED_SEGMENT_BYTES: Final = 16 * MIB
"""Of `__retained`. What is not compacted yet is its newest segments and about as much as is
retained: 128 MiB in all where few topics change often."""

RETAINED_PAGE_NAMES: Final = 5_000
"""Topics that the event loop looks at in one go while it keeps what is retained: about 2 ms."""

SESSION_PARTITIONS: Final = 16
"""Partitions of `__mqtt`. A session lives in the one that its client id hashes to, so the number
never changes; 16 let the sessions of a node spread over a cluster later, and cost a commit round
little where many clients write in it."""

SESSION_CHECKPOINT_BYTES: Final = 4 * MIB
"""A partition of `__mqtt` is left alone while it is shorter: a start reads all 16 in well under a
second."""

SESSION_READ_BYTES: Final = 4 * MIB
"""Of `__mqtt`, read at a time while a node starts: HTTP is answered between two reads."""

INTERNAL_PARTITIONS: Final = OFFSETS_PARTITIONS + 1 + RETAINED_PARTITIONS + SESSION_PARTITIONS
"""Of the node's own streams: `__offsets`, `__producers`, `__retained`, `__mqtt`. They are made when
first needed, and have their place whatever users have made before."""

STATE_RECORDS: Final = 10_000
"""Records of one partition of an internal stream after which its state is written anew: a start
reads no more of them than this, or than the state holds, in some 0.2 s."""

STATE_AGE_MS_MAX: Final = 3_600_000
"""How long a state may stay behind its log. Far less than compaction keeps tombstones, for a state
that is older than a tombstone which went would bring its key back."""

UNKEPT_BYTES_MAX: Final = 512 * MIB
"""Records of all partitions, written since the last sources of messages were kept beside them, that
a start after a crash reads: one or two seconds."""

UNKEPT_CHECK_BYTES: Final = 64 * MIB
"""Appended before what is not kept is added up."""
