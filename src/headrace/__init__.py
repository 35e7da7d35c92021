"""headrace: a telemetry broker with a Spark pipeline.

Layers, highest first: `cli`, `pipeline`, `spark`, `collect`, `node`, `sync`, `client`, `adapters`,
`ports`, `kernel`, `wire`, then `config`, `model`, `limits`, `errors`, `native`. A module imports
only lower ones; ARCHITECTURE.md says what each owns.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.client import (
        Admin,
        ClientError,
        Consumer,
        Login,
        Message,
        Producer,
        Queue,
        RebalanceListener,
        Record,
        RecordMetadata,
        Reject,
        TopicPartition,
    )
    from headrace.native import __version__

__all__ = [
    "Admin",
    "ClientError",
    "Consumer",
    "Login",
    "Message",
    "Producer",
    "Queue",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "Reject",
    "TopicPartition",
    "__version__",
]

_MODULES: Final = frozenset({"client", "errors", "pipeline", "spark", "sync", "testing"})
"""What programs use beside that."""

_HOMES: Final = dict.fromkeys(__all__, "headrace.client") | {"__version__": "headrace.native"}


def __getattr__(name: str) -> object:
    """What others own, loaded late: the command tells where the compiled module does not fit."""
    if name in _MODULES:
        return import_module(f"headrace.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
