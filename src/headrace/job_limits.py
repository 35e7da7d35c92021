"""Every bound of what runs beside a node (collector, Spark source, pipeline), with its reason.

As `headrace.limits`, for those whose bounds no node knows.
"""

from typing import Final

from headrace.limits import MIB

# --- collector -----------------------------------------------------------------------------------

COLLECT_WINDOW: Final = 500
"""Messages that the collector keeps unacknowledged, and no more than the broker's Receive
Maximum (MQTT 5.0 3.3.4): ten commits of 2 ms at 25,000 a second."""

COLLECT_START_SECONDS: Final = 10.0
"""How long the collector looks for a broker that it has never reached, before it fails."""

COLLECT_FLUSH_SECONDS: Final = 10.0
"""How long a stopping collector waits for outstanding acknowledgements."""

COLLECT_BACKOFF_SECONDS_MIN: Final = 0.05
COLLECT_BACKOFF_SECONDS_MAX: Final = 5.0
"""Pause before the collector connects again or repeats a refused publish: doubled from the one
to the other, and shortened at random, so that a fleet does not return as one."""

COLLECT_REFUSALS_MAX: Final = 20
"""Refusals in a row, without one acknowledgement between them, after which a collector fails:
more than a minute of pauses."""

CSV_LINE_LENGTH_MAX: Final = MIB
"""Characters of a line of an input file: eight of the longest fields that Python's csv takes."""

EXPORTER_URLS_MAX: Final = 1_000
"""Exporters that one collector asks: each is a task and a connection, and at times a page."""

EXPORTER_SCRAPES_MAX: Final = 128
"""Pages that are read at a time: their memory, against waiting for exporters that hang."""

EXPORTER_PAGE_BYTES_MAX: Final = 16 * MIB
"""Of a page as it is read, and unpacked: 1,000 GPUs of a federated page with 60 metrics of 250
bytes are 15 MB; one node of 8 GPUs has 60 KB."""

EXPORTER_READINGS_MAX: Final = 200_000
"""Of a page: 1,000 GPUs with 200 metrics. A reading takes 300 bytes, however short its line."""

EXPORTER_REDIRECTS_MAX: Final = 3
"""To other paths of the same exporter; to another host none is followed."""

EXPORTER_STALE_SECONDS: Final = 120.0
"""How long a page may stay the same to the bit before it is said: four times the 30 s at which
dcgm-exporter collects. Power and energy of a live GPU move with each."""

EXPOSITION_LINE_LENGTH_MAX: Final = 16_384
"""Characters of a line of metrics that are kept. A sample has 300. A message holds a line three
times at most, each character as six, and must fit into an MQTT packet of 1 MiB."""

COLLECT_BACKLOG_BYTES: Final = 64 * MIB
"""Read and not yet taken by the broker, of a collector that goes on: five hours of a node of 8
GPUs at 15 s. Beyond it nothing is read, which is counted and said; nothing read is dropped."""

WIDE_TEXT_LENGTH_MAX: Final = 65_536
"""Characters of values in one wide message: with escapes and labels it fits into a packet."""

SOURCE_BYTES_MAX: Final = 200
"""Name of an MQTT source in UTF-8: brokers keep each in memory, per partition."""

TOPIC_LEVEL_BYTES_MAX: Final = 4096
"""Longest level of a topic that the collector publishes on; three of them, and what stands
before them, stay within the 65,535 bytes of a topic (MQTT 5.0 1.5.4)."""

REPLAY_GPUS_MAX: Final = 100_000
"""GPUs that a trace is played for: the largest fleet that headrace is made for. Each holds its
place in the trace, about 2 KB."""

WIDE_MESSAGES_OPEN_MAX: Final = REPLAY_GPUS_MAX
"""GPUs whose wide message is not complete yet, one for each: a fleet of the largest size."""

# --- simulated fleets ----------------------------------------------------------------------------

SIMULATED_GPUS_MAX: Final = 10_000
"""GPUs of a simulated fleet, each with about 10 KB of state."""

SIMULATED_DAYS_MAX: Final = 31
"""Of the fleet's time: all jobs of a fleet are drawn before it starts, some ten a day and GPU."""

SIMULATED_FAULTS_MAX: Final = 1_000
"""Of each kind."""

SIMULATED_INTERVAL_SECONDS_MIN: Final = 1.0
SIMULATED_INTERVAL_SECONDS_MAX: Final = 60.0
"""Between scrapes: DCGM samples its fields once a second, and the shortest fault is to show in
fifteen scrapes."""

SIMULATED_SPEED_MAX: Final = 1e6
"""Of the fleet's time against that of the clock: eleven days in a second, more than any machine
makes."""

# --- Spark ---------------------------------------------------------------------------------------

SPARK_FETCH_BYTES: Final = 4 * MIB
"""Of one fetch of a Spark task: about 10,000 messages of telemetry, 10 to 20 ms on loopback."""

SPARK_FETCH_WAIT_MS: Final = 500
"""How long such a fetch waits for a first record, before it looks whether it still should."""

SPARK_SILENCE_SECONDS_MAX: Final = 60.0
"""How long records that were committed may fail to come, as while a broker restarts."""

SPARK_BATCH_ROWS_MAX: Final = 16_384
"""Rows of one Arrow batch: from 4,000 to 20,000 the hand-over to the JVM is fastest."""

SPARK_TASK_RECORDS_MIN: Final = 5_000
"""Records worth a task of their own: a task costs about 30 ms, as much as reading them."""

SPARK_READINGS_MAX: Final = 1_000_000
"""Readings of telemetry in one micro-batch that is bounded at all, as near as a sample tells. While
the pipeline brings them into tables, a reading takes 3 KB in its task: 3 GB together."""

SPARK_SAMPLED_RECORDS_MIN: Final = 1_000
"""Records of a micro-batch from which on a sample is worth its fetches: fewer would have to hold a
thousand readings each."""

SPARK_SAMPLE_BYTES: Final = 64 * 1024
"""Of a fetch that tells how many readings records hold: hundreds of narrow ones, or a few wide."""

SPARK_SINK_BATCH_BYTES: Final = 256 * 1024
"""Of a batch that a Spark task appends: large enough that the log takes it as it is, and 200
partitions hold 50 MB of them."""

SPARK_SINK_BATCH_BYTES_MAX: Final = 900_000
"""To which such a batch may grow by one record: below the `max.message.bytes` of Kafka, 1 MiB."""

SPARK_SINK_LOOK_MS: Final = 100
"""How long the log is waited for where another attempt's batch may be about to become durable."""

# --- pipeline ------------------------------------------------------------------------------------

PIPELINE_REACH_SECONDS: Final = 10.0
"""How long the broker is waited for, as while it starts, before Spark is started."""

PIPELINE_MESSAGES_PER_BATCH: Final = 20_000
"""Messages of one micro-batch: where they are wide and hold fifty readings, a million of those."""

PIPELINE_BUCKETS_MAX: Final = 1_024
"""Shares of the GPUs: each micro-batch writes files of each, and each is a task."""

PIPELINE_CACHE_BYTES: Final = 256 * MIB
"""Columns of files that a worker keeps for the next micro-batch: of some 1.5 million readings, more
than a micro-batch looks back on."""

PIPELINE_SPANS_MAX: Final = 16
"""Separate stretches of time that one micro-batch recomputes; more are joined, shortest gap first.
Each is a term of every filter."""

PIPELINE_DERIVE_SECONDS: Final = 5
"""Of event time, after which intervals, minutes, hours, jobs and detections are made anew. Shorter
than an interval, and it leaves most micro-batches of a live stream with the readings alone."""

PIPELINE_BEHIND_SECONDS: Final = 24 * 3_600
"""How far a partition may be behind the newest of its micro-batch and still hold the clock. While a
backlog is read, one whose GPUs have stopped may be hours behind the others; a clock that has lost
its battery is years."""

PIPELINE_STALENESS_SECONDS: Final = 150
"""Between two scrapes of a GPU that still reports, where nobody says otherwise: one scrape of 60 s
that is missed, or four of the 30 s at which dcgm-exporter collects, as while it is started anew.
Prometheus looks back 5 min, but that is how long a GPU is silent that has vanished."""

PIPELINE_WHOLE_BYTES_MAX: Final = 4 * MIB
"""Of a file that a task reads whole, and keeps for the next micro-batch; of a larger one it reads
the rows that it needs."""

PIPELINE_MERGED_BYTES_MAX: Final = 32 * MIB
"""Of a file that was merged from small ones: two million readings, about 500 MB while a task has
them at hand."""

PIPELINE_COMMITS_MAX: Final = 5
"""Times that a micro-batch is done again because somebody merged files meanwhile."""

PIPELINE_ALERTS_CLOSE_SECONDS: Final = 10.0
"""How long a pipeline that ends waits for the broker to take its last alerts."""

PIPELINE_ALERTS_SESSION_SECONDS: Final = 3600
"""How long the broker keeps what it has begun to take of alerts, while the connection is away."""

PIPELINE_ALERTS_QUIET_SECONDS: Final = 1.0
"""Silence after which all retained alerts have come: MQTT marks no end of them."""

MANIFESTS_KEPT: Final = 20
"""Versions of the tables that stay readable beside the newest: a reader may hold one for as many
micro-batches."""

PIPELINE_DELTA_MANIFESTS_KEPT: Final = 600
"""The same where Delta logs follow: foreign readers do not begin again where a file is gone, so a
query has five minutes at two versions a second. Manifests of 500 files take 80 MB then."""

PIPELINE_DELTA_CHECKPOINT_COMMITS: Final = 100
"""From one checkpoint of a Delta log to the next: that many commits a reader reads one by one. Half
of what a checkpoint costs, 50 ms, is to read what came since the last."""

PIPELINE_DELTA_LOG_SECONDS: Final = 3_600
"""How long commits of a Delta log are kept behind a checkpoint, and removed files named in it: who
follows the log may be away for that long."""

FUTURE_SECONDS_MAX: Final = 300
"""How far an event may lie after its reading: clocks of a fleet differ, and five minutes is what
Kerberos lets them (RFC 4120, `clockskew`)."""

# --- headrace api --------------------------------------------------------------------------------

API_REFRESH_SECONDS: Final = 0.25
"""Between looks for a newer version of the tables: a directory of `MANIFESTS_KEPT` names, and four
times in the shortest usual micro-batch, so that no version is older than a reader may hold."""

API_REFRESH_FAR_SECONDS: Final = 2.0
"""The same in an object store, where each look is a request that is paid for."""

API_ROWS: Final = 1_000
API_ROWS_MAX: Final = 10_000
"""Rows of telemetry in an answer, and those that one may ask for: 3 MB of JSON, 50 ms."""

API_FILES_MAX: Final = 510
"""Files that one answer about telemetry reads; a page may end before its limit because of it. A
month of one file a day, or nine hours of tables that no compaction has seen."""

API_FOOTERS_BYTES: Final = 32 * MIB
"""Footers of Parquet files that are kept, by their size on the disk; in memory they take ten times
that (measured). Four months of intervals of 100 GPUs, in a file a day and bucket."""

API_WINDOW_SECONDS_MAX: Final = 31 * 86_400
"""Length of a window over which telemetry is put together."""

API_RECENT_SECONDS: Final = 3_600
"""Before the newest time of a GPU: what its latest values and its metrics are looked for in."""

assert 4 * TOPIC_LEVEL_BYTES_MAX < 65_535
assert 6 * (3 * EXPOSITION_LINE_LENGTH_MAX + WIDE_TEXT_LENGTH_MAX) < MIB
