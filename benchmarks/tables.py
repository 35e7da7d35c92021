"""Tables as a fleet leaves them, without a pipeline: what `benchmarks/api.py` asks about.

    python benchmarks/tables.py FOLDER --gpus 100 --days 30

Files lie as after `headrace pipeline compact`: one for each bucket and day, of readings three,
sorted by GPU and time, in row groups of the size that the pipeline writes. Values are drawn from a
hash of GPU and time, so that the same arguments make the same tables. Loads last hours and have
pods; rollups are made by the pipeline's own functions.
"""

import argparse
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from headrace.dcgm.fields import FIELDS, IN_INTERVALS, Keep
from headrace.pipeline import manifest as manifests
from headrace.pipeline import rollups
from headrace.pipeline.manifest import Manifest, TableFile, Totals
from headrace.pipeline.rules import RULES
from headrace.pipeline.schemas import SCHEMA_VERSION, arrow_schema

START_US = int(datetime(2030, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
DAY_S = 86_400
ROW_GROUP = 20_480
METRICS = FIELDS[:50]
TIMES = {
    "readings": ("event_time", "event_time"),
    "gpu_intervals": ("interval_start", "interval_start"),
    "jobs": ("start", '"end"'),
}
"""Columns whose least and greatest values a manifest tells."""

GPUS = """
    SELECT
        g, format('GPU-{:08x}-bench-{:04d}', hash(g) % 4294967296, g) AS uuid, '' AS gpu_i_id,
        format('node-{:04d}', g // 8) AS host, format('nvidia{}', g % 8) AS device,
        (g % 8)::INTEGER AS gpu_index, '' AS gpu_i_profile,
        CASE WHEN g // 8 % 3 = 0 THEN 'NVIDIA H200' ELSE 'NVIDIA H100 80GB HBM3' END AS model
    FROM range($gpus) AS _(g) WHERE g % $buckets = $bucket"""

SCRAPES = """
    SELECT gpus.*, t, make_timestamptz($start_us + t * 1000000) AS seen,
        hash(g, t // 14400) % 10 AS load, hash(g, t) % 1000 / 1000.0 AS noise
    FROM gpus, range($from_s, $to_s, $step) AS _(t)"""

POD = "CASE WHEN load < 7 THEN format('train-{}-{}', t // 14400, g // 8) ELSE '' END"
LEVEL = "CASE WHEN load < 6 THEN 0.7 + noise * 0.25 WHEN load = 6 THEN 0.0 ELSE noise * 0.02 END"


def of_level(field):
    """An expression for a value of a field, in its unit."""
    high = {"": 0.0, "%": 100.0, "ratio": 1.0, "W": 700.0, "MiB": 80_000.0}.get(field.unit, 1000.0)
    digits = 3 if field.unit == "ratio" else 0
    return f"round(({LEVEL}) * {high}, {digits})"


def interval_columns():
    """Every column of `gpu_intervals`, as SQL over a scrape."""
    known = {
        "interval_start": "seen", "interval_end": "seen + to_seconds($step)",
        "namespace": f"CASE WHEN ({POD}) = '' THEN '' ELSE format('team-{{}}', g // 16) END",
        "pod": POD, "container": "''", "samples": "1", "readings": str(len(METRICS)),
        "late_readings": "0", "profiling_gaps": "0", "seconds": "$step::DOUBLE",
        "energy_source": "'counter'", "energy_seconds": "$step::DOUBLE", "counter_restarts": "0",
        "energy_joules": f"round(({LEVEL}) * 700.0, 0) * $step",
    }  # fmt: skip
    for field in IN_INTERVALS:
        for keep, column in field.columns.items():
            value = of_level(field) if keep in {Keep.MEAN, Keep.MAX} else "0"
            known.setdefault(column, value)
    schema = arrow_schema("gpu_intervals")
    return ", ".join(f'({known.get(name, name)}) AS "{name}"' for name in schema.names)


def reading_columns():
    """Every column of `readings`, as SQL over a scrape and a metric."""
    known = {
        "topic": "'gpu-telemetry'", "partition": "g % 12", "offset": "t * 1000 + g",
        "item": "m", "event_time": "seen", "ingest_time": "seen", "status": "'ok'",
        "raw": "value::VARCHAR", "value_long": "value::BIGINT", "conflict": "false",
        "late": "false", "driver": "'570'", "namespace": "''", "pod": POD, "container": "''",
        "labels": "MAP {}::MAP(VARCHAR, VARCHAR)", "source": "'bench'", "source_epoch": "1",
        "source_sequence": "t",
    }  # fmt: skip
    schema = arrow_schema("readings")
    return ", ".join(f'({known.get(name, name)}) AS "{name}"' for name in schema.names)


class Maker:
    """Writes the files of one folder."""

    def __init__(self, root, *, gpus, days, step, buckets, readings_days):
        self.root, self.days, self.step, self.buckets = root, days, step, buckets
        self.readings_days = readings_days
        self.gpus = gpus
        self.duck = duckdb.connect()
        self.duck.execute("SET TimeZone = 'UTC'")
        self.files: list[TableFile] = []
        (root / "batch=0").mkdir(parents=True)

    def make(self):
        """All of them; the committed manifest."""
        for bucket in range(self.buckets):
            self.duck.execute(f"CREATE OR REPLACE TEMP TABLE gpus AS {self._filled(GPUS, bucket)}")
            hours = []
            for day in range(self.days):
                hours.append(self._day(bucket, day))
                if day >= self.days - self.readings_days:
                    for part in range(3):
                        self._readings(bucket, day * DAY_S + part * DAY_S // 3)
            held = " UNION ALL ".join(f"FROM hours{n}" for n in range(len(hours)))
            for number, each in enumerate(hours):
                self.duck.register(f"hours{number}", each)
            self._copy("jobs", rollups.jobs(self.duck.sql(held).to_arrow_table()), bucket)
        self._detections()
        rows = sum(file.rows for file in self.files if file.table == "readings")
        after = Manifest().next(
            batch=0, query="bench", buckets=self.buckets, interval_seconds=self.step
        )
        after = after.with_files(self.files, []).with_readings(Totals(rows, rows, rows), {}, {})
        manifests.commit(self.root, after)
        return after

    def _filled(self, sql, bucket=0, from_s=0, to_s=0):
        given = {
            "$gpus": self.gpus, "$buckets": self.buckets, "$bucket": bucket,
            "$start_us": START_US, "$step": self.step,
            "$from_s": from_s, "$to_s": to_s,
        }  # fmt: skip
        for name in sorted(given, key=len, reverse=True):
            sql = sql.replace(name, str(given[name]))
        return sql

    def _day(self, bucket, day):
        scrapes = f"SELECT {interval_columns()} FROM ({SCRAPES})"
        rows = self.duck.sql(
            self._filled(scrapes, bucket, day * DAY_S, (day + 1) * DAY_S)
        ).to_arrow_table()
        self._copy("gpu_intervals", rows, bucket, day, "uuid, gpu_i_id, interval_start")
        minutes = rollups.minutes(rows, {"default": 2.5}, 0.12)
        self._copy("gpu_minutes", minutes, bucket, day, "uuid, gpu_i_id, start")
        hours = rollups.hours(minutes)
        self._copy("gpu_hours", hours, bucket, day, "uuid, gpu_i_id, start")
        return hours

    def _readings(self, bucket, from_s):
        """A third of a day, which is about what the pipeline merges into one file."""
        listed = ", ".join(
            f"({number}, '{field.name}', {field.id or 'NULL'}, '{field.unit}')"
            for number, field in enumerate(METRICS)
        )
        values = "CASE " + " ".join(
            f"WHEN m = {number} THEN {of_level(field)}" for number, field in enumerate(METRICS)
        )
        sql = f"""
            SELECT {reading_columns()} FROM (
                SELECT *, {values} END::DOUBLE AS value FROM ({SCRAPES}),
                    (VALUES {listed}) AS _(m, metric, field_id, unit)
            ) ORDER BY uuid, gpu_i_id, metric, event_time"""
        to_s = from_s + DAY_S // 3
        self._add("readings", self._filled(sql, bucket, from_s, to_s), bucket, from_s)

    def _detections(self):
        kinds = ", ".join(f"'{rule.kind}'" for rule in RULES)
        seconds = self.days * DAY_S
        sql = f"""
            SELECT md5(format('{{}}-{{}}', g, n)) AS id,
                ([{kinds}])[1 + (hash(g, n) % {len(RULES)})::BIGINT] AS kind,
                ['info', 'warning', 'critical'][1 + (hash(n, g) % 3)::BIGINT] AS severity,
                uuid, gpu_i_id, host, gpu_index, model, '' AS namespace, '' AS pod, '' AS container,
                make_timestamptz($start_us + (hash(g, n) % {seconds})::BIGINT * 1000000) AS start,
                CASE WHEN n > 0 THEN start + INTERVAL 1 HOUR END AS "end",
                start + INTERVAL 1 HOUR AS last, 60.0 AS window_seconds,
                MAP {{'power_watts': 100.0}} AS evidence, 'found by a benchmark' AS text
            FROM gpus, range({2 * self.days}) AS _(n)"""
        for bucket in range(self.buckets):
            self.duck.execute(f"CREATE OR REPLACE TEMP TABLE gpus AS {self._filled(GPUS, bucket)}")
            rows = self.duck.sql(self._filled(sql)).to_arrow_table()
            self._copy("detections", rows, bucket, None, "start")

    def _copy(self, table, rows, bucket, day=None, order="uuid"):
        names = ", ".join(f'"{name}"' for name in arrow_schema(table).names)
        self.duck.register("rows", rows)
        start_us = None if day is None else START_US + day * DAY_S * 1_000_000
        chunk = None if day is None else (start_us, start_us + DAY_S * 1_000_000)
        sql = f"SELECT {names} FROM rows ORDER BY {order}"
        self._add(table, sql, bucket, day or 0, chunk)

    def _add(self, table, sql, bucket, number, chunk=None):
        """A file as the pipeline's manifest describes it."""
        name = f"batch=0/{table}-{bucket}-{number}.parquet"
        path = self.root / name
        self.duck.execute(
            f"COPY ({sql}) TO '{path}' (FORMAT parquet, COMPRESSION zstd,"
            f" ROW_GROUP_SIZE {ROW_GROUP})"
        )
        time, last = TIMES.get(table, ("start", "start"))
        ((low, high, rows),) = self.duck.execute(
            f"SELECT epoch_us(min({time})), epoch_us(max({last})), count(*) FROM '{path}'"
        ).fetchall()
        self.files.append(
            TableFile(
                table=table, path=name, rows=rows, bytes=path.stat().st_size, batch=0,
                schema=SCHEMA_VERSION, bucket=bucket, min_time_us=low, max_time_us=high,
                chunk=chunk,
            )
        )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="replaced where it is one of these tables")
    parser.add_argument("--gpus", type=int, default=100)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--step", type=int, default=15, help="seconds between scrapes")
    parser.add_argument("--buckets", type=int, default=2)
    parser.add_argument("--readings-days", type=int, default=2, help="the last ones, with readings")
    given = vars(parser.parse_args())
    root = given.pop("folder")
    if (root / manifests.FOLDER).is_dir():
        shutil.rmtree(root)
    begun = time.monotonic()
    after = Maker(root, **given).make()
    for name in dict.fromkeys(file.table for file in after.files):
        held = after.of(name)
        print(
            f"{name:14} {sum(file.rows for file in held):12,} rows "
            f"{sum(file.bytes for file in held):13,} bytes {len(held):4} files"
        )
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
