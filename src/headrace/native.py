"""Typed re-export of the compiled module; no logic.

Everything else imports the compiled code from here, so that one place says what crosses.
"""

# Until the store and the switchboard are bound, takes what the module has.
from headrace._native import *  # noqa: F403
from headrace._native import __version__

__all__ = [  # noqa: F405
    "Appended",
    "BatchSummary",
    "Buffer",
    "Completion",
    "ConnectRequest",
    "CorruptRecordError",
    "Effects",
    "HeadraceError",
    "NativeError",
    "OutOfOrderSequenceError",
    "RecordColumns",
    "RecordsTooLargeError",
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
