"""What stands for the records of a batch before those who sent them.

Owns: what came of a batch, told to each of its records. A record costs one small object that the
garbage collector does not look at (`native.Delivery`); a future is made only for one that somebody
waits for, and what was stored is said once for all of them. Must not know: how batches come to be.
Lives in one event loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from headrace.client.lanes import Waiters
from headrace.client.records import metadata_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from headrace.client.lanes import Batch, Stored
    from headrace.client.records import RecordMetadata
    from headrace.native import Delivery


@dataclass(frozen=True, slots=True)
class _Call:
    """A callback of a delivery, which gets that and not the future behind it."""

    delivery: Delivery[Any]
    callback: Callable[[Any], object]

    def __call__(self, _: asyncio.Future[Any]) -> None:
        self.callback(self.delivery)


class Deliveries(Waiters):
    """Futures of those records of a batch that somebody waits for, and what came of all.

    Attributes:
        loop: where it lives.
        place: stream, partition, first offset and time of the append, once it is stored.
        times: its records' own.
        error: why it is not stored.
        is_heard: somebody has asked for that.
        kept: records that it kept when it was split; None where it was not.
        rest: stands for the others then.
    """

    __slots__ = ("error", "is_heard", "kept", "loop", "place", "rest", "times")

    def __init__(self, futures: dict[int, asyncio.Future[RecordMetadata]] = {}) -> None:  # noqa: B006 - it is copied
        super().__init__(futures)
        self.loop = asyncio.get_running_loop()
        self.place: tuple[str, int, int, int] | None = None
        self.times: memoryview | None = None
        self.error: Exception | None = None
        self.is_heard = False
        self.kept: int | None = None  # where it was split
        self.rest: Deliveries | None = None

    def __del__(self) -> None:
        """Says that records were not stored, where nobody has asked for any of them."""
        if self.error is not None and not self.is_heard and not self:
            what = {"message": "records were not stored, and nobody asked", "exception": self.error}
            self.loop.call_exception_handler(what)

    # --- what came of it ------------------------------------------------------------------------

    def split(self, at: int) -> Self:
        """As `Waiters.split`; who asks for one of the others finds them."""
        second = super().split(at)
        second.kept, second.rest = self.kept and self.kept - at, self.rest
        self.kept, self.rest = at, second
        return second

    def stored(self, outcome: Stored) -> None:
        """The batch is where it belongs."""
        batch: Batch = outcome.batch
        lane = batch.lane
        self.times = memoryview(batch.records.timestamps()).cast("q")
        self.place = lane.stream, lane.partition, outcome.base_offset, outcome.timestamp_ms
        for index, future in self.items():
            if not future.done():
                future.set_result(self.metadata(index))

    def failed(self, error: Exception) -> None:
        """The batch is given up."""
        self.error = error
        for future in self.values():
            if not future.done():
                future.set_exception(error)

    def metadata(self, index: int) -> RecordMetadata:
        """Where a record of a stored batch is."""
        assert self.place is not None
        assert self.times is not None
        stream, partition, offset, appended_ms = self.place
        timestamp = self.times[index] if appended_ms < 0 else appended_ms
        return metadata_of((stream, partition, offset if offset < 0 else offset + index, timestamp))

    # --- what deliveries ask ---------------------------------------------------------------------

    def _at(self, index: int) -> tuple[Deliveries, int]:
        """Where a record is by now: a batch may have been split since."""
        of = self
        while of.kept is not None and index >= of.kept:
            index -= of.kept
            assert of.rest is not None
            of = of.rest
        return of, index

    def future(self, index: int) -> asyncio.Future[RecordMetadata]:
        """A future of one record."""
        of, index = self._at(index)
        future: asyncio.Future[RecordMetadata] | None = of.get(index)
        if future is None:
            future = of[index] = of.loop.create_future()
            if of.place is not None:
                future.set_result(of.metadata(index))
            elif of.error is not None:
                future.set_exception(of.error)
        return future

    def done(self, index: int) -> bool:
        """Whether one is stored, has failed, or was cancelled."""
        of, index = self._at(index)
        future = of.get(index)
        if future is not None:
            return bool(future.done())
        return of.place is not None or of.error is not None

    def cancelled(self, index: int) -> bool:
        """Whether nobody waits for it any more."""
        of, index = self._at(index)
        future = of.get(index)
        return future is not None and future.cancelled()

    def result(self, index: int) -> RecordMetadata:
        """Where it is.

        Raises:
            ClientError: it was not stored, or nobody can say.
            InvalidStateError: nobody knows yet.
            CancelledError: it was cancelled.
        """
        of, at = self._at(index)
        if of.place is not None and at not in of:
            return of.metadata(at)
        error = self.exception(index)
        if error is not None:
            raise error
        metadata: RecordMetadata = of[at].result()
        return metadata

    def exception(self, index: int) -> BaseException | None:
        """Why it was not stored; None where it is.

        Raises:
            InvalidStateError, CancelledError: as `result`.
        """
        of, index = self._at(index)
        future = of.get(index)
        if future is not None:
            error: BaseException | None = future.exception()
            return error
        if of.place is None and of.error is None:
            raise asyncio.InvalidStateError("nobody knows yet whether the record is stored")
        of.is_heard = True
        return of.error

    def call_back(
        self,
        index: int,
        delivery: Delivery[Any],
        callback: Callable[[Any], object],
        context: Context | None,
    ) -> None:
        """Calls with the delivery once it is done."""
        self.future(index).add_done_callback(_Call(delivery, callback), context=context)

    def call_not_back(
        self, index: int, delivery: Delivery[Any], callback: Callable[[Any], object]
    ) -> int:
        """Takes callbacks back; how many."""
        return self.future(index).remove_done_callback(_Call(delivery, callback))
