"""Typed re-export of the compiled module; no logic.

Everything else imports the compiled code from here, so that one place says what crosses.
"""

from headrace._native import (
    Appended,
    BatchSummary,
    Completion,
    ConnectRequest,
    CorruptRecordError,
    Effects,
    NativeError,
    OutOfOrderSequenceError,
    RecordColumns,
    Recovery,
    StaleProducerEpochError,
    StorageCorruptError,
    StorageError,
    Store,
    Switchboard,
    UnsupportedRecordError,
    __version__,
    build_batch,
    decode_records,
    murmur2,
    validate_batches,
)

__all__ = [
    "Appended",
    "BatchSummary",
    "Completion",
    "ConnectRequest",
    "CorruptRecordError",
    "Effects",
    "NativeError",
    "OutOfOrderSequenceError",
    "RecordColumns",
    "Recovery",
    "StaleProducerEpochError",
    "StorageCorruptError",
    "StorageError",
    "Store",
    "Switchboard",
    "UnsupportedRecordError",
    "__version__",
    "build_batch",
    "decode_records",
    "murmur2",
    "validate_batches",
]
