"""headrace: a telemetry broker with a Spark pipeline.

Layers, highest first: `cli`, `pipeline`, `spark`, `collect`, `node`, `client`, `adapters`,
`ports`, `kernel`, `wire`, then `config`, `model`, `limits`, `errors`, `native`. A module imports
only lower ones; ARCHITECTURE.md says what each owns.
"""

from headrace.native import __version__

__all__ = ["__version__"]
