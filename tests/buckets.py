"""Tables written bucket by bucket, without Spark: what its tasks do, one after the other."""

from datetime import datetime

from frames import table
from headrace.pipeline import manifest as manifests
from headrace.pipeline import tables
from headrace.pipeline.bucket import Bucket, Task
from headrace.pipeline.detections import detect, rules_of


class Tables:
    """A folder of tables and what was sent to it.

    Args:
        root: the folder.
        buckets: shares of the GPUs, by their UUIDs.
        interval_us: length of an interval.
        rules: settings of rules, by kind.
        given: prices, as of `Task`.
    """

    def __init__(self, root, *, buckets=2, interval_us=10_000_000, rules=None, **given):
        self._rules = rules_of(rules or {})
        self.root = root
        self._buckets = buckets
        self._interval_us = interval_us
        self._given = {"prices": {}, "energy_price": 0.0, **given}
        self._sent = 0

    def write(self, payloads):
        """Brings messages into the tables, as one micro-batch; the committed manifest."""
        before = tables.manifest(self.root)
        batch = before.batch + 1
        task = Task(
            tables_dir=str(self.root), batch=batch, interval_us=self._interval_us,
            watermark_seconds=90.0, newest_us=before.newest_us, files=before.by_bucket(),
            **self._given,
        )  # fmt: skip
        readings = table(payloads, first_offset=self._sent)
        self._sent += len(payloads)
        after = before.next(
            batch=batch, query="q", buckets=self._buckets, interval_seconds=self._interval_us / 1e6
        )
        uuids = readings["uuid"].to_pylist()
        newest: dict[str, int] = {}
        shares = [sum((uuid or "").encode()) % self._buckets for uuid in uuids]
        for number in range(self._buckets):
            mine = readings.filter([share == number for share in shares])
            if mine.num_rows:
                done = Bucket(task, number).write(mine)
                after = after.with_bucket(done.added, done.replaced, done.offsets, done.newest_us)
                newest |= done.newest_us.get("gpu-telemetry", {})
        after = detect(
            self.root, before, after, self._rules,
            newest_us=list(newest.values()), watermark_us=90_000_000,
        )  # fmt: skip
        manifests.commit(self.root, after)
        return after

    @staticmethod
    def instant(text):
        """An event time as the tables have it."""
        return datetime.fromisoformat(text)

    def arrow(self, name):
        """A table."""
        return tables.open_arrow(self.root, name).to_table()

    def rows(self, name):
        """The rows of a table, by time and GPU."""
        start = "interval_start" if name == "gpu_intervals" else "start"
        order = [(column, "ascending") for column in (start, "uuid", "gpu_i_id", "pod")]
        return self.arrow(name).sort_by(order).to_pylist()
