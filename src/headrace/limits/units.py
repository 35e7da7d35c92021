"""Units, and the ends of what numbers can be."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
DAY_MS: Final = 86_400_000
INT64_MAX: Final = 2**63 - 1
