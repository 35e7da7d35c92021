"""Tables written bucket by bucket, without Spark: what its tasks do, one after the other."""

from datetime import datetime

from frames import STORED, table
from headrace.pipeline import mirror, step, tables
from headrace.pipeline.bucket import Bucket
from headrace.pipeline.detections import rules_of
from headrace.pipeline.folder import Folder


class Tables:
    """A folder of tables and what was sent to it.

    Args:
        root: the folder.
        buckets: shares of the GPUs, by their UUIDs.
        interval_us: length of an interval.
        rules: settings of rules, by kind.
        given: prices and format, as of `Settings`; `derives` says of a manifest whether what waits
            is made; `now` is what the future is measured against.
    """

    def __init__(self, root, *, buckets=2, interval_us=10_000_000, rules=None, **given):
        self.root = root
        self._derives = given.pop("derives", lambda _before: True)
        self._now = given.pop("now", "event_time")
        self._settings = step.Settings(
            tables_dir=root, query="q", interval_us=interval_us, watermark_seconds=90.0,
            buckets=buckets, rules=rules_of(rules or {}), **given,
        )  # fmt: skip
        self._sent = 0
        mirror.begin(root, self._settings.format)

    def write(self, payloads, stored=STORED):
        """Brings messages into the tables, as one micro-batch; the committed manifest."""
        before = tables.manifest(self.root)
        batch = before.batch + 1
        derives = before.version < 0 or self._derives(before)
        place = f"batch={batch}"
        task = step.task(before, self._settings, place, batch, derives=derives)
        readings = table(payloads, first_offset=self._sent, now=self._now, stored=stored)
        self._sent += len(payloads)
        uuids = readings["uuid"].to_pylist()
        buckets = self._settings.buckets
        shares = [sum((uuid or "").encode()) % buckets for uuid in uuids]
        outcomes = [
            Bucket(task, number).run(readings.filter([share == number for share in shares]))
            for number in range(buckets)
        ]
        after = step.after_batch(outcomes, batch, before, self._settings)
        if derives:
            after = step.watched(Folder.at(self.root), after, place, self._settings)
        mirror.commit(self.root, after, self._settings.format)
        return after

    def finish(self):
        """Makes what waits to be made of readings."""
        before = tables.manifest(self.root)
        place = step.work_place(before)
        task = step.task(before, self._settings, place, before.batch, derives=True)
        none = table([], first_offset=0)
        outcomes = [Bucket(task, number).run(none) for number in range(self._settings.buckets)]
        after = step.after_merging(outcomes, before)
        after = step.watched(Folder.at(self.root), after, place, self._settings)
        mirror.commit(self.root, after, self._settings.format)

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
