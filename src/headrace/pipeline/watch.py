"""Detections: a fold over what the rules say of each GPU, in the order of time.

A pure machine. Owns when a detection opens, goes on and ends: a condition must hold for its window,
and must not hold for a while before it has ended, so that nothing flaps. What lies further back
than the watermark is settled and folded once; what is newer is folded anew with each micro-batch,
for late readings may still change it. So the same readings give the same detections.
"""

from __future__ import annotations

import copy
import json
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.activity import Activity
from headrace.pipeline.rollups import MINUTE_US
from headrace.pipeline.rules import APPLICATION_XIDS, FATAL_XIDS, SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.pipeline.rules import Rule, Severity

Row = dict[str, Any]
Key = tuple[str, str]
"""UUID and GPU instance id."""

_SECOND_US: Final = 1_000_000
_CONTEXT: Final = ("host", "gpu_index", "model", "namespace", "pod", "container")

_COUNTED: Final = frozenset(
    {"ecc_dbe", "ecc_sbe", "uncorrectable_remapped_rows", "nvlink_replays", "nvlink_crc",
     "pcie_replays"}
)  # fmt: skip
_GREATEST: Final = frozenset(
    {"gpu_temp_celsius_max", "code", "row_remap_pending", "row_remap_failure", "throttle_reasons"}
)
"""Evidence that adds up, and evidence of which the greatest says something; of any other, the
mean."""

_FORGOTTEN_US: Final = 7 * 24 * 3600 * _SECOND_US
"""Silence after which a GPU is no longer missed: it was taken out."""


@dataclass(slots=True)
class Track:
    """A condition that holds, or has held a moment ago.

    Attributes:
        kind: of the rule.
        start_us: start of the first row for which it held.
        last_us: end of the last one.
        severity: the worst so far.
        context: who and where, of the first row.
        rows: rows since then that said something.
        held: of those, for which it held.
        is_open: whether it has held for long enough.
        sums: of each piece of evidence, its sum or greatest value, and what that is divided by.
    """

    kind: str
    start_us: int
    last_us: int
    severity: Severity
    context: Row
    rows: int = 0
    held: int = 0
    is_open: bool = False
    sums: dict[str, list[float]] = field(default_factory=dict)


@dataclass(slots=True)
class Gpu:
    """What is known of a GPU or MIG slice.

    Attributes:
        last_us: end of its last interval.
        active_us: the same in time for which the stream went on (`Activity.at`).
        first_us: start of the first one that is known of; None before it.
        context: of the last one.
        power_limit_watts: as last reported, or assumed.
        slowdown_celsius: as last reported.
        xid: last code; it stays until another comes.
        tracks: by kind.
        recent: of each count, what it grew lately: `(end_us, growth, start_us)`.
    """

    last_us: int = 0
    active_us: int = 0
    first_us: int | None = None
    context: Row = field(default_factory=dict)
    power_limit_watts: float | None = None
    slowdown_celsius: float | None = None
    xid: float | None = None
    tracks: dict[str, Track] = field(default_factory=dict)
    recent: dict[str, deque[tuple[int, float, int]]] = field(default_factory=dict)


class Watch:
    """All GPUs, up to one instant.

    Args:
        rules: what is looked for.
        interval_us: length of a row of `gpu_intervals`, in microseconds.
        staleness_us: longest time between two scrapes of a GPU that still reports, in microseconds:
            who is silent for less may still go on.
    """

    def __init__(self, rules: Sequence[Rule], interval_us: int, staleness_us: int) -> None:
        self._interval_us, self._staleness_us = interval_us, staleness_us
        # From the end of a row to that of the next, and of a minute's, where a GPU reports.
        self._silent_us = staleness_us + max(interval_us, MINUTE_US)
        self._rules = {rule.kind: rule for rule in rules}
        missed = self._rules["vanished"]
        least_s = (staleness_us + interval_us) / _SECOND_US
        self._rules["vanished"] = replace(missed, window_s=max(missed.window_s, least_s))
        self.gpus: dict[Key, Gpu] = {}
        self.activity = Activity(staleness_us)
        self.until_us = 0
        """What ends at or before it is in here."""

    def rows(self, found: Iterable[Row], kinds: Sequence[str]) -> list[Row]:
        """Folds rows of `signals`, which are in order for each GPU; the detections that ended."""
        ended: list[Row] = []
        for row in found:
            key = (row["uuid"], row["gpu_i_id"])
            gpu = self.gpus.setdefault(key, Gpu())
            for kind in kinds:
                self._judge(key, gpu, self._rules[kind], row, ended)
            if "xid" in row:
                self._reported(key, gpu, row, ended)
        return ended

    def _reported(self, key: Key, gpu: Gpu, row: Row, ended: list[Row]) -> None:
        """Takes over what an interval says of the GPU itself."""
        self._is_back(key, gpu, row["start_us"], ended)
        self._known(gpu, row)

    def _is_back(self, key: Key, gpu: Gpu, start_us: int, ended: list[Row]) -> None:
        """Ends `vanished` where a GPU reports again, also where nobody had looked meanwhile."""
        missed = gpu.tracks.pop("vanished", None)
        if missed is None and self._is_missing(gpu, start_us):
            missed = self._vanished(gpu)
        if missed is not None:
            missed.last_us = start_us
            ended.append(self._detection(key, missed, is_open=False))

    def _is_missing(self, gpu: Gpu, time_us: int) -> bool:
        """Whether nothing has come of a GPU for the window, while the stream went on."""
        window_us = self._rules["vanished"].window_s * _SECOND_US
        return gpu.last_us > 0 and self.activity.at(time_us) - gpu.active_us >= window_us

    def _vanished(self, gpu: Gpu) -> Track:
        rule = self._rules["vanished"]
        track = Track(rule.kind, gpu.last_us, gpu.last_us, rule.severity, gpu.context)
        track.is_open = True
        return track

    def _judge(self, key: Key, gpu: Gpu, rule: Rule, row: Row, ended: list[Row]) -> None:
        holds, severity, start_us = self._holds(gpu, rule, row)
        track = gpu.tracks.get(rule.kind)
        if holds:
            # Silence says nothing, so it ends nothing while the GPU still reports.
            patience_us = max(rule.clear_s * _SECOND_US, self._staleness_us)
            if track is not None and row["start_us"] - track.last_us > patience_us:
                self._drop(key, gpu, track, ended)
                track = None
            if track is None:
                context = {name: row[name] for name in _CONTEXT}
                track = Track(rule.kind, start_us, start_us, severity, context)
                gpu.tracks[rule.kind] = track
            self._extend(rule, track, row, severity)
        elif track is not None and holds is not None:
            track.rows += 1
            too_seldom = not track.is_open and track.held < rule.share * track.rows
            if too_seldom or row["end_us"] - track.last_us > rule.clear_s * _SECOND_US:
                self._drop(key, gpu, track, ended)

    def _extend(self, rule: Rule, track: Track, row: Row, severity: Severity) -> None:
        track.rows += 1
        track.held += 1
        track.last_us = max(track.last_us, row["end_us"])
        track.severity = max(track.severity, severity, key=SEVERITIES.index)
        for name in rule.evidence:
            value = row.get(name)
            if value is None:
                continue
            sums = track.sums.setdefault(name, [0.0, 0.0])
            if name in _COUNTED:
                sums[:] = [sums[0] + value, 1.0]
            elif name in _GREATEST:
                sums[:] = [max(sums[0], value) if sums[1] else value, 1.0]
            else:
                sums[:] = [sums[0] + value, sums[1] + 1.0]
        lasted = track.last_us - track.start_us
        enough = lasted >= rule.window_s * _SECOND_US
        if not track.is_open and enough and track.held >= rule.share * track.rows:
            track.is_open = True

    def _holds(self, gpu: Gpu, rule: Rule, row: Row) -> tuple[bool | None, Severity, int]:
        """Whether the rule holds in a row, how bad that is, and since when."""
        if rule.kind == "xid":
            return self._xid(gpu, row)
        holds: bool | None = row[rule.kind]
        severity = rule.worse_severity if row[f"{rule.kind}_worse"] else rule.severity
        start_us: int = row["start_us"]
        for place, count in enumerate(rule.counts):
            growth = row[f"{rule.kind}_{place}"]
            if not growth:
                continue
            recent = gpu.recent.setdefault(f"{rule.kind}_{place}", deque())
            within_us = rule.settings[count.seconds] * _SECOND_US
            since_us = row["end_us"] - (gpu.last_us or row["start_us"])
            if since_us > within_us:
                # It grew in longer than that: so much is in a part of that length at least.
                growth = ceil(growth * within_us / since_us)
            recent.append((row["end_us"], growth, row["start_us"]))
            oldest = row["end_us"] - within_us
            while recent[0][0] <= oldest:
                recent.popleft()
            if sum(amount for _, amount, _ in recent) >= rule.settings[count.threshold]:
                holds = True
                start_us = min(start_us, recent[0][2])
                severity = max(severity, count.severity, key=SEVERITIES.index)
        return holds, severity, start_us

    def _xid(self, gpu: Gpu, row: Row) -> tuple[bool | None, Severity, int]:
        """A code is raised when it changes: the field holds the last one for ever.

        The first that is seen of a GPU may be old, and is not raised, unless the GPU has been there
        without one: since 4.5 DCGM gives no 0 before the first, and NVML never did.
        """
        code, start_us = row["xid"], row["start_us"]
        if gpu.xid is None:
            is_new = gpu.first_us is not None and start_us - gpu.first_us >= self._staleness_us
        else:
            is_new = code != gpu.xid
        if not code or not is_new or code in APPLICATION_XIDS:
            return False, "info", start_us
        row["code"] = code
        return True, "critical" if code in FATAL_XIDS else "warning", start_us

    def summaries(self, found: Iterable[Row]) -> list[Row]:
        """Takes over the last row of each GPU, folded or not; the detections that ended.

        Each has the start of its GPU's first row as `since_us`.
        """
        ended: list[Row] = []
        for row in found:
            key = (row["uuid"], row["gpu_i_id"])
            gpu = self.gpus.setdefault(key, Gpu())
            if row["since_us"] > gpu.last_us:
                self._is_back(key, gpu, row["since_us"], ended)
            if row["end_us"] >= gpu.last_us:
                self._known(gpu, row)
        return ended

    def _known(self, gpu: Gpu, row: Row) -> None:
        gpu.last_us = row["end_us"]
        gpu.active_us = self.activity.at(gpu.last_us)
        if gpu.first_us is None:
            gpu.first_us = row["start_us"]
        gpu.context = {name: row[name] for name in _CONTEXT}
        gpu.power_limit_watts = row["power_limit_watts"]
        gpu.slowdown_celsius = row["slowdown_celsius"]
        if row["xid"] is not None:
            gpu.xid = row["xid"]

    def missing(self, clock_us: int) -> list[Row]:
        """Opens `vanished` for who has been silent for its window, while the stream went on.

        Who is silent for long is forgotten; the detections that end with that.
        """
        ended: list[Row] = []
        now_us = min(clock_us, self.activity.seen_us)
        for key, gpu in list(self.gpus.items()):
            silent_us = clock_us - gpu.last_us
            if silent_us > _FORGOTTEN_US:
                for each in list(gpu.tracks.values()):
                    self._drop(key, gpu, each, ended)
                del self.gpus[key]
            elif "vanished" in gpu.tracks or self._is_missing(gpu, now_us):
                track = gpu.tracks.setdefault("vanished", self._vanished(gpu))
                track.last_us = max(track.last_us, now_us)
        return ended

    def quiet(self, clock_us: int) -> list[Row]:
        """Ends tracks of GPUs that say nothing more: the detections among them."""
        ended: list[Row] = []
        for key, gpu in self.gpus.items():
            for track in list(gpu.tracks.values()):
                rule = self._rules[track.kind]
                patience_us = max(rule.clear_s * _SECOND_US, self._silent_us)
                if track.kind != "vanished" and clock_us - track.last_us > patience_us:
                    self._drop(key, gpu, track, ended)
        return ended

    def open(self) -> list[Row]:
        """The detections that have not ended."""
        return [
            self._detection(key, track, is_open=True)
            for key, gpu in self.gpus.items()
            for track in gpu.tracks.values()
            if track.is_open
        ]

    def _drop(self, key: Key, gpu: Gpu, track: Track, ended: list[Row]) -> None:
        gpu.tracks.pop(track.kind, None)
        if track.is_open:
            ended.append(self._detection(key, track, is_open=False))

    def _detection(self, key: Key, track: Track, *, is_open: bool) -> Row:
        rule = self._rules[track.kind]
        evidence = {name: round(total / count, 4) for name, (total, count) in track.sums.items()}
        words: dict[str, Any] = dict.fromkeys(rule.evidence, 0.0) | evidence
        words["sm_active_percent"] = 100 * words.get("sm_active_ratio", 0.0)
        words["lasted"] = _lasted((track.last_us - track.start_us) // _SECOND_US)
        settings = {"window_s": rule.window_s, "clear_s": rule.clear_s, **rule.settings}
        uuid, gpu_i_id = key
        return {
            "id": f"{track.kind}/{uuid}/{gpu_i_id}/{track.start_us}",
            "kind": track.kind,
            "severity": track.severity,
            "uuid": uuid,
            "gpu_i_id": gpu_i_id,
            **track.context,
            "start_us": track.start_us,
            "end_us": None if is_open else track.last_us,
            "last_us": track.last_us,
            "window_seconds": rule.window_s,
            "evidence": {**evidence, **{f"rule.{name}": value for name, value in settings.items()}},
            "text": rule.text.format(**words),
        }

    def copy_of(self, keys: Iterable[Key]) -> Watch:
        """A watch that knows these GPUs alone, to look ahead with."""
        ahead = Watch(tuple(self._rules.values()), self._interval_us, self._staleness_us)
        ahead.until_us = self.until_us
        ahead.activity = copy.copy(self.activity)
        ahead.gpus = {key: copy.deepcopy(self.gpus[key]) for key in keys if key in self.gpus}
        return ahead

    def dumps(self) -> str:
        """The whole state as text."""
        gpus = [
            [uuid, gpu_i_id, {**asdict(gpu), "recent": {k: list(v) for k, v in gpu.recent.items()}}]
            for (uuid, gpu_i_id), gpu in sorted(self.gpus.items())
        ]
        seen = {"seen_us": self.activity.seen_us, "paused_us": self.activity.paused_us}
        state = {"until_us": self.until_us, **seen, "gpus": gpus}
        return json.dumps(state, separators=(",", ":"))

    def loads(self, text: str) -> None:
        """Reads what `dumps` wrote."""
        state: Mapping[str, Any] = json.loads(text)
        self.until_us = state["until_us"]
        # What an older release remembers knows of no pauses.
        seen_us, paused_us = state.get("seen_us", self.until_us), state.get("paused_us", 0)
        self.activity = Activity(self._staleness_us, seen_us, paused_us)
        for uuid, gpu_i_id, fields in state["gpus"]:
            fields.setdefault("active_us", fields["last_us"])
            tracks = {kind: Track(**track) for kind, track in fields.pop("tracks").items()}
            recent = {
                name: deque(tuple(each) for each in rows)
                for name, rows in fields.pop("recent").items()
            }
            self.gpus[uuid, gpu_i_id] = Gpu(**fields, tracks=tracks, recent=recent)


def _lasted(seconds: int) -> str:
    for unit, name in ((24 * 3600, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
