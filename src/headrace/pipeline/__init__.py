"""GPU telemetry from a stream to tables and detections, exactly once.

The way of a reading: `format("headrace")` decodes and judges it; `batch` gives each `bucket` of
GPUs to a task, which lets `settle` find what repeats, contradicts or comes late, `intervals` and
`rollups` add up, and writes files; `detections` lets `watch` fold what `signals` and `rules` say;
`mirror` commits the `manifest` of all tables together, and the logs that `delta` makes of it.
`step` is what of this needs no Spark; `merge` and `compact` keep files few, `backfill` makes tables
anew; `folder` and `files` hold them. `alerts` and `announce` tell of what opened and ended.
`schemas` knows the tables, `tables` is the readers' door.
"""

from headrace.pipeline.batch import warm_up
from headrace.pipeline.run import Options, Progress, run, start

__all__ = ["Options", "Progress", "run", "start", "warm_up"]
