"""GPU telemetry from a stream to tables, exactly once.

The way of a message: `decode` (payload to texts), `clean` (texts to values or reasons),
`duplicates` (what repeats, contradicts, comes late), then `batch` writes `readings`, `quarantine`
and `duplicates`, recomputes `intervals`, and commits all tables together through `manifest`.
`fields` knows DCGM, `schemas` the tables, `tables` is the door for readers.
"""

from headrace.pipeline.run import Progress, run, start

__all__ = ["Progress", "run", "start"]
