"""Detections: reads what is new in the tables, lets the watch fold it, writes what it found.

The shell around `signals` and `watch`. What ended and is settled stands in files of its own; what
is open, or may still change, in one file that is replaced each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline import merge, signals, tables
from headrace.pipeline.folder import Folder
from headrace.pipeline.manifest import WATCH
from headrace.pipeline.rollups import MINUTE_US
from headrace.pipeline.rules import RULES
from headrace.pipeline.schemas import DETECTIONS, GPU_INTERVALS, GPU_MINUTES, arrow_schema
from headrace.pipeline.watch import Watch
from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.pipeline.folder import Location
    from headrace.pipeline.manifest import Manifest
    from headrace.pipeline.rules import Rule
    from headrace.pipeline.watch import Key

_STRAGGLER: Final = "straggler"
_OWN_INPUT: Final = frozenset({"vanished", _STRAGGLER})
"""Kinds that do not look at intervals."""

_CHANGING: Final = (0, 0)
"""`chunk` of the file that is replaced each time."""

_ORDER: Final[Any] = [("start", "ascending"), ("id", "ascending")]


def rules_of(changes: Mapping[str, Mapping[str, float]]) -> tuple[Rule, ...]:
    """The rules with other settings, by kind.

    Raises:
        PipelineError: there is no such rule or setting.
    """
    if unknown := set(changes) - {rule.kind for rule in RULES}:
        known = ", ".join(rule.kind for rule in RULES)
        raise PipelineError(f"no rule {min(unknown)!r}; there are {known}")
    try:
        return tuple(rule.tuned(changes.get(rule.kind, {})) for rule in RULES)
    except ValueError as error:
        raise PipelineError(f"rules: {error}") from None


def detect(
    tables_dir: Location,
    after: Manifest,
    rules: Sequence[Rule],
    *,
    place: str,
    watermark_us: int,
    staleness_us: int,
    anew: bool = False,
) -> Manifest:
    """`after`, with what the rules find in its tables.

    Args:
        tables_dir: location of the tables.
        after: the manifest, with all other tables and its clock.
        rules: what is looked for.
        place: folder in that of each table that new files go to.
        watermark_us: how far behind the clock a reading may still come in time.
        staleness_us: longest time between two scrapes of a GPU that still reports.
        anew: forget what was found and remembered, and look at all intervals there are.

    Raises:
        PipelineError: what the rules remember cannot be read.
    """
    folder = Folder.at(tables_dir)
    watch = Watch(rules, _interval_us(after), staleness_us)
    if after.watch and not anew:
        try:
            watch.loads(folder.text(after.watch))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PipelineError(
                f"{folder.shown(after.watch)}: what the rules remember cannot be read ({error}); "
                "restore it, or let `headrace pipeline backfill` make detections anew"
            ) from error
    clock_us = after.clock_us
    # In whole steps, and the same ones wherever micro-batches were cut.
    horizon_us = (clock_us - watermark_us) // _STEP_US * _STEP_US
    ended: list[dict[str, Any]] = []
    for until_us in _days(after, horizon_us) if anew else ():
        ended += _Look(folder, after, watch, rules, until_us).advance(watch, until_us)
    look = _Look(folder, after, watch, rules)
    ended += look.advance(watch, horizon_us)
    # What is newer is looked at with a copy: late readings may still change it.
    ahead = watch.copy_of(watch.gpus)
    changing = look.advance(ahead, clock_us)
    # Some partitions are ahead of the others, and by that of the clock.
    changing += look.fold(ahead, clock_us + staleness_us)
    ahead.until_us = clock_us + staleness_us
    # A host's clock that was ahead for once says nothing of what is open now.
    jumped = look.jumped(ahead, staleness_us)
    kept = [row for row in ahead.open() if (row["uuid"], row["gpu_i_id"]) in jumped]
    changing += look.fold(ahead, None)
    changing += ahead.open()
    ids = {row["id"] for row in kept}
    changing = kept + [row for row in changing if row["id"] not in ids]
    return _written(folder, after, place, watch, ended, changing, anew=anew)


def _days(manifest: Manifest, until_us: int) -> list[int]:
    """Ends of the last intervals of each day, before an instant: so much is in memory at a time.

    No midnights: where the whole stream was silent then, no GPU has vanished.
    """
    last: dict[int, int] = {}
    for file in manifest.of(GPU_INTERVALS):
        if file.max_time_us is not None:
            end = file.max_time_us + _interval_us(manifest)
            end += -end % _STEP_US
            day = (end - 1) // _DAY_US
            last[day] = max(end, last.get(day, end))
    return [end for end in sorted(last.values()) if end < until_us]


class _Look:
    """What the tables say of the time after what a watch knows, and until an instant if given."""

    def __init__(
        self,
        folder: Folder,
        manifest: Manifest,
        watch: Watch,
        rules: Sequence[Rule],
        until_us: int | None = None,
    ) -> None:
        self._rules = [rule for rule in rules if rule.kind not in _OWN_INPUT]
        self._straggler = next(rule for rule in rules if rule.kind == _STRAGGLER)
        since = watch.until_us
        intervals = _between_ends(
            folder, manifest, GPU_INTERVALS, signals.INTERVAL_COLUMNS, since, until_us
        )
        known = [
            {
                "uuid": uuid, "gpu_i_id": gpu_i_id, "xid": gpu.xid,
                "power_limit_watts": gpu.power_limit_watts,
                "slowdown_celsius": gpu.slowdown_celsius,
            }
            for (uuid, gpu_i_id), gpu in watch.gpus.items()
        ]  # fmt: skip
        self._intervals = signals.of_intervals(
            intervals, pa.Table.from_pylist(known, signals.KNOWN), self._rules
        )
        minutes = _between_ends(
            folder, manifest, GPU_MINUTES, signals.MINUTE_COLUMNS, since, until_us
        )
        self._minutes = signals.of_minutes(minutes, self._straggler)

    def advance(self, watch: Watch, until_us: int) -> list[dict[str, Any]]:
        """Lets `watch` fold what ends until an instant, step by step; what ended.

        Who falls silent is noticed at steps: long ones would miss who comes back within one.
        """
        ended: list[dict[str, Any]] = []
        for step_us in (*self._steps(watch.until_us, until_us), until_us):
            if step_us > watch.until_us:
                ended += self.fold(watch, step_us)
                watch.until_us = step_us
                ended += watch.missing(step_us)
                ended += watch.quiet(step_us)
        return ended

    def _steps(self, after_us: int, until_us: int) -> list[int]:
        ends = _between(self._intervals, after_us, until_us)["end_us"].combine_chunks()
        up = pc.add(pc.subtract(ends, 1), _STEP_US)
        steps = pc.unique(pc.multiply(pc.divide(up, _STEP_US), _STEP_US)).to_pylist()
        return sorted(step for step in steps if step < until_us)

    def jumped(self, watch: Watch, staleness_us: int) -> set[Key]:
        """GPUs of which the next row is further ahead than one that still reports may be silent."""
        rows = _between(self._intervals, watch.until_us, None)
        first = rows.group_by(["uuid", "gpu_i_id"]).aggregate([("start_us", "min")]).to_pylist()
        keys = {(row["uuid"], row["gpu_i_id"]): row["start_us_min"] for row in first}
        return {
            key
            for key, start_us in keys.items()
            if key in watch.gpus
            and start_us - max(watch.gpus[key].last_us, watch.until_us) > staleness_us
        }

    def fold(self, watch: Watch, until_us: int | None) -> list[dict[str, Any]]:
        """Lets `watch` fold what ends after what it knows and, if given, until an instant."""
        after_us = watch.until_us
        rows = _between(self._intervals, after_us, until_us)
        watch.activity.saw(rows["start_us"], rows["end_us"])
        tracked = {key for key, gpu in watch.gpus.items() if gpu.tracks}
        changed = rows.filter(rows["changes"])
        keys = set(zip(changed["uuid"].to_pylist(), changed["gpu_i_id"].to_pylist(), strict=True))
        ended = watch.rows(_of(rows, keys | tracked), [rule.kind for rule in self._rules])
        ends = rows.group_by(["uuid", "gpu_i_id"]).aggregate(
            [("end_us", "max"), ("start_us", "min")]
        )
        last = rows.join(
            ends.rename_columns({"end_us_max": "end_us", "start_us_min": "since_us"}),
            ["uuid", "gpu_i_id", "end_us"], join_type="inner",
        )  # fmt: skip
        ended += watch.summaries(last.to_pylist())
        minutes = _between(self._minutes, after_us, until_us)
        slow = minutes.filter(minutes[_STRAGGLER])
        keys = set(zip(slow["uuid"].to_pylist(), slow["gpu_i_id"].to_pylist(), strict=True))
        tracked = {key for key, gpu in watch.gpus.items() if _STRAGGLER in gpu.tracks}
        return ended + watch.rows(_of(minutes, keys | tracked), [_STRAGGLER])


def _between_ends(
    folder: Folder,
    manifest: Manifest,
    table: str,
    columns: Sequence[str],
    after_us: int,
    until_us: int | None,
) -> pa.Table:
    """Rows of a table that end after one instant and, if given, until another."""
    is_minutes = table == GPU_MINUTES
    start, end = ("start", "end") if is_minutes else ("interval_start", "interval_end")
    whole = arrow_schema(table)
    schema = pa.schema([whole.field(name) for name in columns])
    last_us = _NEVER_US if until_us is None else until_us
    # A row that ends after an instant begins no longer than this before it.
    longest_us = _interval_us(manifest) + MINUTE_US
    parts = [
        folder.read(file.path, whole, columns)
        for file in manifest.of(table)
        if file.overlaps(after_us - longest_us, last_us)
    ]
    rows = pa.concat_tables([schema.empty_table(), *parts])
    ends = pc.cast(rows[end], pa.int64())
    if is_minutes:
        ends = pc.max_element_wise(ends, pc.cast(rows["active_to"], pa.int64()))
    inside = pc.and_(pc.greater(ends, after_us), pc.less_equal(ends, last_us))
    return rows.filter(inside).sort_by([(start, "ascending")])


_NEVER_US: Final = 2**63 - 1
_DAY_US: Final = 24 * 3600 * 1_000_000

_STEP_US: Final = 60_000_000
"""From one look at who is silent to the next: less than any window in which silence counts."""


def _interval_us(manifest: Manifest) -> int:
    return round(manifest.interval_seconds * 1_000_000)


def _between(rows: pa.Table, after_us: int, until_us: int | None) -> pa.Table:
    inside = pc.greater(rows["end_us"], after_us)
    if until_us is not None:
        inside = pc.and_(inside, pc.less_equal(rows["end_us"], until_us))
    return rows.filter(inside)


def _of(rows: pa.Table, keys: set[tuple[str, str]]) -> list[dict[str, Any]]:
    """The rows of these GPUs, in their order."""
    if not keys:
        return []
    mine = rows.filter(pc.is_in(rows["uuid"], pa.array(sorted({uuid for uuid, _ in keys}))))
    return [row for row in mine.to_pylist() if (row["uuid"], row["gpu_i_id"]) in keys]


def _written(
    folder: Folder,
    after: Manifest,
    place: str,
    watch: Watch,
    ended: Sequence[dict[str, Any]],
    changing: Sequence[dict[str, Any]],
    *,
    anew: bool,
) -> Manifest:
    token, schema = uuid4().hex[:12], arrow_schema(DETECTIONS)
    state = f"{WATCH}/{place}/{token}.json"
    folder.write_text(state, watch.dumps())
    files = after.of(DETECTIONS)
    replaced = [file for file in files if anew or file.chunk == _CHANGING]
    tables_of = {"changing": (_table(changing), _CHANGING), "ended": (_table(ended), None)}
    for at, group in enumerate(merge.alike(set(files) - set(replaced), after.clock_us, merge.FEW)):
        rows = pa.concat_tables(folder.read(file.path, schema, schema.names) for file in group)
        tables_of[f"merged-{at}"] = (rows.sort_by(_ORDER), None)
        replaced += group
    added = [
        tables.add(
            folder, f"{DETECTIONS}/{place}/{name}-{token}.parquet", DETECTIONS, rows,
            batch=after.batch, chunk=chunk,
        )
        for name, (rows, chunk) in tables_of.items()
        if rows.num_rows
    ]  # fmt: skip
    return after.watched(added, [file.path for file in replaced], state, [*ended, *changing])


def _table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    schema = arrow_schema(DETECTIONS)
    columns: dict[str, pa.Array] = {}
    for column in schema:
        if column.name in {"start", "end", "last"}:
            micros = pa.array([row[f"{column.name}_us"] for row in rows], pa.int64())
            columns[column.name] = micros.cast(column.type)
        elif column.name == "evidence":
            pairs = [sorted(row["evidence"].items()) for row in rows]
            columns[column.name] = pa.array(pairs, column.type)
        else:
            columns[column.name] = pa.array([row[column.name] for row in rows], column.type)
    return pa.table(columns, schema=schema).sort_by(_ORDER)
