"""headrace: a telemetry broker with a Spark pipeline.

Layers, highest first: `cli`, `pipeline`, `spark`, `collect`, `node`, `client`, `adapters`,
`ports`, `kernel`, `wire`, then `config`, `model`, `limits`, `errors`, `native`. A module imports
only lower ones; ARCHITECTURE.md says what each owns.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.native import __version__

__all__ = ["__version__"]


def __getattr__(name: str) -> object:
    """What the compiled module has, loaded late: the command tells where that does not fit."""
    if name == "__version__":
        from headrace.native import __version__  # noqa: PLC0415

        return __version__
    raise AttributeError(f"module 'headrace' has no attribute {name!r}", name=name)
