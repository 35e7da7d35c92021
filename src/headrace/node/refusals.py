"""What the switchboard's refusal of a publish from another door is to that door."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import (
    HeadraceError,
    MessageTooLargeError,
    QueueFullError,
    RetainedLimitError,
    StaleEpochError,
    StorageFullError,
    UnavailableError,
    UnknownStreamError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

FAILURE: Final = 0x80
STALE_EPOCH: Final = 0x83
NO_QUEUE: Final = 0x90
QUOTA_EXCEEDED: Final = 0x97
"""Reason codes of PUBACK (MQTT 5.0 table 3-4); those from 0x80 on mean that it is not stored."""

TOO_LARGE: Final = 0x95
QUEUE_FULL: Final = 0x96
RETAIN_NOT_SUPPORTED: Final = 0x9A
"""What the switchboard says beside these of what a stream does not take."""


_REFUSALS: Final[Mapping[int, tuple[type[HeadraceError], str]]] = {
    STALE_EPOCH: (StaleEpochError, "its source has published in a newer epoch"),
    NO_QUEUE: (
        UnknownStreamError,
        "no queue has this name; headrace queues create makes one",
    ),
    TOO_LARGE: (
        MessageTooLargeError,
        "larger than max.message.bytes of a stream that stores it",
    ),
    QUEUE_FULL: (
        QueueFullError,
        "the queue owes as much as it may; try again later, or raise its depth.max.*",
    ),
    RETAIN_NOT_SUPPORTED: (
        RetainedLimitError,
        (
            "as much is retained as may be (limits.retained_messages, limits.retained_bytes); "
            "delete some, or raise the bound"
        ),
    ),
    QUOTA_EXCEEDED: (StorageFullError, "the disk was nearly full"),
}
_UNKNOWN: Final = (UnavailableError, "the disk refused; try again")


def refused(code: int, full: str | None = None) -> HeadraceError:
    """To raise for a reason code from `FAILURE` on; `full` says why a disk is nearly full."""
    error, text = _REFUSALS.get(code, _UNKNOWN)
    return error(full if full is not None and code == QUOTA_EXCEEDED else text)
