"""What a task of a sink says before it writes, so that another attempt can tell what it has done.

A pure part: no broker, no Spark. An intent is kept beside offsets in a group of the task, for each
partition of the stream that is written to: the offset is one before which the task has written
nothing of this micro-batch, the text says as whom it writes. Invariants: an epoch belongs to one
micro-batch, in which sequences begin at 0, and follows from its number, so that an intent that is
set back by a late attempt leads nobody into the epoch of another; what is trusted has no other
attempt beside it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.spark.errors import WriteError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OVER: Final = "headrace-sink-over"
"""Group in which batch writes that are over are named, at the first partition of each stream."""

OVER_MAX: Final = 64
"""Names kept there: 2 KB of text, of the 4 KB that a broker takes."""

EPOCHS: Final = 2**15
"""Of a producer id: an int16 in each batch."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a task.

    Attributes:
        group: of this task in all its attempts and micro-batches, where intents are kept.
        batch: number of the micro-batch; 0 for a batch write.
        run: of the query, another one after each restart.
        is_first: whether Spark has not begun this task before in this run.
        is_new: whether no run before this one can have written in this group.
    """

    group: str
    batch: int
    run: str
    is_first: bool
    is_new: bool


@dataclass(frozen=True, slots=True)
class Intent:
    """As whom a task writes a micro-batch.

    Attributes:
        batch: number of the micro-batch.
        run: of the query in which it began.
        producer: id, drawn once for the group and stream, and each `EPOCHS` micro-batches.
        epoch: of this micro-batch: its number modulo `EPOCHS`.
        at_ms: when it began: the time of records that are given none, in every attempt.
    """

    batch: int
    run: str
    producer: int
    epoch: int
    at_ms: int

    def dump(self) -> str:
        """The text that is kept."""
        return json.dumps(asdict(self), separators=(",", ":"))


class Begun(NamedTuple):
    """How an attempt begins.

    Attributes:
        intent: as whom it writes.
        is_repeated: whether the intent was kept before: an attempt may have written under it.
        is_trusted: whether no other attempt writes at the same time or has written before.
    """

    intent: Intent
    is_repeated: bool
    is_trusted: bool


def begin(
    kept: Intent | None, attempt: Attempt, at_ms: int, draw_producer: Callable[[], int]
) -> Begun:
    """Decides as whom an attempt writes.

    Raises:
        WriteError: a later micro-batch has begun: Spark has given up on this attempt long ago.
    """
    epoch = attempt.batch % EPOCHS
    if kept is not None and kept.batch == attempt.batch:
        return Begun(kept, is_repeated=True, is_trusted=False)
    if kept is not None and kept.batch > attempt.batch:
        raise WriteError(
            f"micro-batch {attempt.batch} is over, {kept.batch} has begun ({attempt.group}); a "
            "checkpoint that was set back needs a new query: start with an empty checkpoint"
        )
    # Earlier releases counted epochs: theirs may be beyond the one that is due.
    is_known = kept is not None and kept.batch - kept.epoch == attempt.batch - epoch
    producer = kept.producer if kept is not None and is_known else draw_producer()
    is_alone = attempt.is_new if kept is None else kept.run == attempt.run
    return Begun(
        Intent(attempt.batch, attempt.run, producer, epoch, at_ms),
        is_repeated=False,
        is_trusted=attempt.is_first and is_alone,
    )


def with_over(text: str, run: str) -> str:
    """The names of writes that are over, and one more; the oldest go."""
    return " ".join([*text.split(), run][-OVER_MAX:])


def refuse_over(text: str, attempt: Attempt) -> None:
    """Refuses an attempt at a write that is named in `text`.

    Raises:
        WriteError: it is: its intents are gone, and it cannot tell what was written.
    """
    if attempt.run in text.split():
        raise WriteError(f"the write is over, and this attempt of a task late ({attempt.group})")


def load(texts: Mapping[int, str]) -> Intent | None:
    """The latest of the intents that are kept of a stream's partitions; None where there is none.

    Raises:
        WriteError: one is something else.
    """
    try:
        found = [Intent(**json.loads(text)) for text in texts.values()]
    except (TypeError, ValueError):
        raise WriteError(
            "the sink's group holds what no sink has written; start with an empty checkpoint"
        ) from None
    return max(found, key=lambda intent: intent.batch, default=None)
