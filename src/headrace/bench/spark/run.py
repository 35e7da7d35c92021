"""One measure after the other, on streams of one broker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from headrace.bench.spark import batches, command, fill, live, source
from headrace.bench.spark.load import MEASURES
from headrace.spark import close

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from headrace.bench.spark.fill import Filled
    from headrace.bench.spark.load import Load, Row
    from headrace.model import Address

GPUS: Final = 64
"""Of telemetry that is stored."""

GPUS_OF_BATCHES: Final = 4
"""Two messages are then half a scrape; at one a second, one micro-batch in ten makes intervals."""


def run(
    measures: Sequence[str],
    load: Load,
    kafka: Address,
    mqtt: Address,
    folder: Path,
    watch: Callable[[str], None],
    rows: list[Row],
) -> None:
    """Measures one thing after the other.

    Args:
        measures: some of `MEASURES`.
        load: what is done.
        kafka: door of a broker that holds nothing yet.
        mqtt: its other door.
        folder: empty; takes tables and logs.
        watch: is told what goes on, in words.
        rows: gets them as they come, so that an error takes none away.

    Raises:
        InputError: the load makes no sense.
        HeadraceError: the broker refuses, Spark fails, or something was lost.
    """
    load.check()
    bench = _Bench(load, str(kafka), mqtt, folder, watch, rows)
    wanted = [measure for measure in MEASURES if measure in measures]
    bench.in_session([measure for measure in wanted if measure in {"source", "pipeline", "batch"}])
    if "pipeline" in wanted:
        watch("pipeline: catching up")
        copied = bench.copied
        rows.append(command.sustained_row(str(kafka), bench.stored, load, folder, copied))
    if "cold" in wanted:
        watch("pipeline: cold start")
        rows.append(command.cold_row(str(kafka), bench.steps, load, folder))
    if "age" in wanted:
        watch("pipeline: live")
        rows += live.age_rows(str(kafka), mqtt, load, folder)


@dataclass
class _Bench:
    load: Load
    servers: str
    mqtt: Address
    folder: Path
    watch: Callable[[str], None]
    rows: list[Row]
    copied: float | None = field(default=None, init=False)

    @cached_property
    def records(self) -> Filled:
        load = self.load
        self.watch("storing records")
        return asyncio.run(
            fill.records(self.servers, "records", load.records, load.payload, load.partitions)
        )

    @cached_property
    def stored(self) -> Filled:
        self.watch("storing telemetry")
        scrapes = fill.fleet(GPUS, self.load.scrape_s).scrapes()
        return asyncio.run(
            fill.telemetry(
                self.servers,
                "telemetry",
                scrapes,
                self.load.partitions,
                readings=self.load.readings,
            )
        )

    @cached_property
    def steps(self) -> Filled:
        scrapes = fill.fleet(GPUS_OF_BATCHES, self.load.scrape_s).scrapes()
        wanted = batches.messages_needed(self.load)
        return asyncio.run(fill.telemetry(self.servers, "steps", scrapes, 1, messages=wanted))

    def in_session(self, wanted: Sequence[str]) -> None:
        """What a session of this process measures; of `pipeline` that is its baseline."""
        if not wanted:
            return
        self.watch("starting Spark")
        spark, why = source.start_session(self.load, self.folder, with_kafka="source" in wanted)
        try:
            if "source" in wanted:
                streams = self.records, self.stored
                self.watch("source to no sink")
                self.rows += source.source_rows(
                    spark, self.servers, self.load, *streams, self.folder, why
                )
            if "batch" in wanted:
                steps = self.steps
                self.watch("micro-batches of two messages")
                self.rows += batches.batch_rows(spark, self.servers, steps, self.folder)
            if "pipeline" in wanted:
                stored = self.stored
                self.watch("Spark copies a stream")
                self.copied = batches.copied_rate(
                    spark, self.servers, stored, self.load, self.folder
                )
        finally:
            close(spark)
