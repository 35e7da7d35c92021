"""What `format("headrace")` and the pipeline do on this machine, broker included.

`load` says what is measured; `fill` puts it into streams; `source` and `batches` measure in a
session of this process, `command` and `live` whole `headrace pipeline run` processes; `run` puts
all of it in order. Only what is imported here works without Spark.
"""

from headrace.bench.spark.load import MEASURES, Load, Row

__all__ = ["MEASURES", "Load", "Row"]
