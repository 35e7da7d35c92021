"""Bounds of the process: its configuration, memory, life."""

from typing import Final

from headrace.limits.units import MIB

CONFIG_BYTES_MAX: Final = MIB
"""A file of settings: a thousand streams take a tenth of it; a device or a log is none."""

HEAP_KEPT_BYTES: Final = 32 * MIB
"""Freed memory at the end of the heap that is kept for the next message. glibc gives back what is
beyond twice its largest buffer, so a busy node would ask for the same pages again and again."""

HEAP_MAPPED_BYTES: Final = 4 * MIB
"""Buffers from this size on are mappings of their own, given back when they are freed: above what
one turn of the loop reads and writes for a connection, below what would leave holes in the heap."""

YOUNG_OBJECTS_MAX: Final = 10_000
"""New objects before the garbage collector looks at them. A connection is some fifteen that stay:
with Python's 700, a twentieth of a storm of connects went into looking at all of them again and
again, with nothing else served meanwhile."""

LOOP_LAG_SECONDS: Final = 0.1
"""How often it is seen how late the event loop is: ten wake-ups a second, some 0.02 % of a core."""

DRAIN_SECONDS: Final = 10.0
"""Orderly stop: what is in flight may take this long before connections are cut."""
